//! The functions.
/// A compiled pattern.
#[derive(Debug)]
pub struct Pattern;
/// A quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity;
/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr;
/// A URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url;
/// A named format.
#[derive(Debug)]
pub struct NamedFormat;
