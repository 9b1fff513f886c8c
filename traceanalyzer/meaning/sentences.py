"""How sentences begin."""


def first_upper(words: str) -> str:
    """The words as the beginning of a sentence."""
    return words[0].upper() + words[1:]
