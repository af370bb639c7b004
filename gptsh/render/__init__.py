"""Events and documents to bytes."""
