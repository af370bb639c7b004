"""What is done with stored sessions without a model: listed, found, shown, exported, labelled, removed, counted."""
