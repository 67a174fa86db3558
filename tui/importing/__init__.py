"""Files with conversations, of hobnob and of other tools, as what is posted to the server."""
