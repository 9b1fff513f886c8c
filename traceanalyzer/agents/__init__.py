"""Questions to a report, asked one at a time: by a program, a shell or an assistant through MCP.

Each question (`verbs.VERBS`, described in `questions`) is a function of a `Workspace` that gives an `Answer`: rows with
stable ids, what every column means, and whether nothing was found or nothing could be looked at. `server` offers them
over MCP, the command line as commands of the same names.
"""
