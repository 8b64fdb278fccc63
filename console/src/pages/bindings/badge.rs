use maud::{Markup, html};
use tautline_api::constraint::Compliance;

/// A compliance, by its name and colour.
pub(in crate::pages) fn badge(compliance: Compliance) -> Markup {
    html! { span class={ "state " (tone(compliance)) } { (compliance.name()) } }
}

/// The class of a compliance's colour.
pub(in crate::pages) fn tone(compliance: Compliance) -> &'static str {
    match compliance {
        Compliance::Error | Compliance::Violation => "bad",
        Compliance::Limit => "near",
        Compliance::Pending => "none",
        Compliance::Compliant => "good",
    }
}
