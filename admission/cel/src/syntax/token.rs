/// A token and the byte offset it starts at.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub at: u32,
    pub kind: TokenKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TokenKind {
    Name(String),
    /// The digits as written, including `0x`. The parser handles the sign before them.
    Int(String),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
    Symbol(&'static str),
    End,
}
