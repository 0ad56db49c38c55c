"""The `baton` command. Each subcommand is a file; nothing heavy is imported before a command needs it."""
