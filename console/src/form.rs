//! Renders forms that filter a page, and their fields.

use maud::{Markup, html};

/// The maximum number of names in a drop-down list. If there are more, the form has a text field.
const MAX_CHOICES: usize = 200;

/// Renders a form whose fields become the query of `page`.
pub(crate) fn filter(id: &str, page: &str, fields: &Markup) -> Markup {
    html! {
        // A refresh of the page preserves the form, as the user may be typing.
        form id=(id) .filter method="get" action=(page) hx-preserve="true" {
            (fields)
            button { "Filter" }
        }
    }
}

/// Renders a field that is not shown.
pub(crate) fn hidden(name: &str, value: &str) -> Markup {
    html! { input type="hidden" name=(name) value=(value); }
}

/// Renders a text field.
pub(crate) fn text(title: &str, name: &str, value: Option<&str>) -> Markup {
    html! { label { (title) input name=(name) value=[value]; } }
}

/// Renders a text field of a search.
pub(crate) fn search(title: &str, name: &str, value: Option<&str>) -> Markup {
    html! { label { (title) input type="search" name=(name) value=[value]; } }
}

/// Renders a drop-down list of values with their texts; the first one is the default.
pub(crate) fn choice<'a>(
    title: &str,
    name: &str,
    chosen: &str,
    choices: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Markup {
    html! {
        label {
            (title)
            select name=(name) {
                @for (value, text) in choices {
                    option value=(value) selected[chosen == value] { (text) }
                }
            }
        }
    }
}

/// Renders a drop-down list of names and `all`, or a text field if there are no or many names.
pub(crate) fn name<'a>(
    title: &str,
    name: &str,
    chosen: Option<&str>,
    names: impl ExactSizeIterator<Item = &'a str>,
) -> Markup {
    if names.len() == 0 || names.len() > MAX_CHOICES {
        return text(title, name, chosen);
    }
    let names = names.map(|name| (name, name));
    let all = std::iter::once(("", "all"));
    choice(title, name, chosen.unwrap_or_default(), all.chain(names))
}
