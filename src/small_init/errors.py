"""The exception a user is meant to read: a sentence with what is wrong and the way out."""


class UserError(Exception):
    """Wrong input or an outside fault; the command line prints it without a traceback."""
