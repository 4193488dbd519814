_Buffer = bytes | memoryview

class HeaderCheck:
    def __init__(
        self,
        *,
        depth: int,
        containers: int,
        array_length: int,
        map_length: int,
        text_bytes: int,
        binary_bytes: int,
    ) -> None: ...
    def __call__(self, header: _Buffer) -> None: ...
