"""Text that is no valid Unicode, and what stands for it.

The name of a file is bytes, and Python makes text of any bytes: what is not UTF-8 becomes lone surrogates.  Such
text cannot be sent, journalled or printed, nor does TensorFlow survive it in an error.  So it is replaced where it
comes in: in errors, and in names that are only shown.  Names that something is found by are refused instead.
"""

__all__ = ["is_valid_text", "valid_text"]


def is_valid_text(text: str) -> bool:
    """Whether text can be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def valid_text(text: str) -> str:
    r"""Return the text with lone surrogates escaped, those that stand for a byte as that byte: `caf\xe9`."""
    if is_valid_text(text):
        return text
    return "".join(letter if is_valid_text(letter) else _escaped(letter) for letter in text)


def _escaped(surrogate: str) -> str:
    number = ord(surrogate)
    is_byte = 0xDC80 <= number <= 0xDCFF  # as os.fsdecode makes them
    return f"\\x{number - 0xDC00:02x}" if is_byte else f"\\u{number:04x}"
