"""The prompt of a conversation, and the list that a session is picked from: what is typed, and what is drawn."""
