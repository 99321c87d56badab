"""The only package that talks to the server: keys, scripts, commands, connections, runners."""
