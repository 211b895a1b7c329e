"""Control policies over websocket, in the message forms of openpi and vla-eval."""
