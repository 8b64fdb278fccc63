//! Parses a value of a fixed list on the command line, with a line of help for each.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// The name of a value, its help (empty for none), and the value.
pub(crate) type Choice<T> = (&'static str, &'static str, T);

/// Returns a parser of the names in `choices`.
pub(crate) fn one_of<T: Clone + Send + Sync>(
    choices: &'static [Choice<T>],
) -> impl TypedValueParser<Value = T> {
    let names = choices.iter().map(|(name, help, _)| {
        let value = PossibleValue::new(*name);
        if help.is_empty() {
            value
        } else {
            value.help(*help)
        }
    });
    PossibleValuesParser::new(names).try_map(|text| {
        let found = choices.iter().find(|(name, _, _)| *name == text);
        found
            .map(|(_, _, value)| value.clone())
            .ok_or("unknown value")
    })
}
