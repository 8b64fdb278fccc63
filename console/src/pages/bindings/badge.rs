use maud::{Markup, html};
use tautline_api::constraint::Compliance;

/// Renders a compliance with its name and colour.
pub(in crate::pages) fn badge(compliance: Compliance) -> Markup {
    html! { span class={ "state " (tone(compliance)) } { (compliance.name()) } }
}

/// Returns the CSS class for the colour of a compliance.
pub(in crate::pages) fn tone(compliance: Compliance) -> &'static str {
    match compliance {
        Compliance::Error | Compliance::Violation => "bad",
        Compliance::Limit => "near",
        Compliance::Pending => "none",
        Compliance::Compliant => "good",
    }
}
