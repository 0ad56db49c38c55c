"""Why a model cannot be had."""


class ModelUnavailable(Exception):
    """The model is unknown, could not be downloaded, or what came is not what was pinned. Says what to do next."""
