use kube::ResourceExt;
use maud::{Markup, html};
use tautline_api::{ConstraintPolicyBinding, constraint::Compliance};

use crate::{
    request::{PageError, PageRequest},
    shell::quote,
};

/// The maximum number of namespaces in a drop-down list. If there are more, the form has a text
/// field.
const MAX_CHOICES: usize = 300;

/// The filter of the bindings to show, from the fields of the query.
#[derive(Debug, Default)]
pub(super) struct Filter {
    namespace: Option<String>,
    offer: Option<String>,
    compliance: Option<Compliance>,
    /// The text to search for, in lower case.
    text: Option<String>,
}

impl Filter {
    pub(super) fn new(request: &PageRequest) -> Result<Self, PageError> {
        let own = |name: &str| request.field(name).map(str::to_owned);
        let compliance = request.field("compliance").map(|name| {
            Compliance::from_name(name).ok_or_else(|| {
                let all = Compliance::WORST_FIRST.map(Compliance::name).join(", ");
                PageError::bad(format!("compliance={name}: write one of {all}"))
            })
        });
        Ok(Self {
            namespace: own("namespace"),
            offer: own("offer"),
            compliance: compliance.transpose()?,
            text: request.field("q").map(|q| q.trim().to_lowercase()),
        })
    }

    pub(super) fn matches_compliance(&self, compliance: Compliance) -> bool {
        self.compliance.is_none_or(|wanted| wanted == compliance)
    }

    /// Returns whether a binding matches all fields except the compliance.
    pub(super) fn matches(&self, binding: &ConstraintPolicyBinding) -> bool {
        let namespace = binding.metadata.namespace.as_deref();
        let is_in = |wanted: &String| namespace == Some(wanted);
        self.namespace.as_ref().is_none_or(is_in)
            && self.offer.as_ref().is_none_or(|o| *o == binding.spec.offer)
            && self
                .text
                .as_ref()
                .is_none_or(|text| has_text(binding, text))
    }

    /// Returns the command that prints the same bindings. It does not search for the text.
    pub(super) fn command(&self) -> String {
        let mut command = match &self.namespace {
            Some(namespace) => format!("get bindings -n {}", quote(namespace)),
            None => "get bindings -A".to_owned(),
        };
        if let Some(offer) = &self.offer {
            command += &format!(" --offer {}", quote(offer));
        }
        if let Some(compliance) = self.compliance {
            command += &format!(" --compliance {}", compliance.name().to_lowercase());
        }
        command
    }

    pub(super) fn form(&self, namespaces: &[&str]) -> Markup {
        let value = |text: &Option<String>| text.clone().unwrap_or_default();
        html! {
            // A refresh of the page preserves the form, as the user may be typing.
            form #filter .filter method="get" action="/bindings" hx-preserve="true" {
                label {
                    "Namespace"
                    @if namespaces.len() > MAX_CHOICES {
                        input name="namespace" value=(value(&self.namespace));
                    } @else {
                        select name="namespace" {
                            option value="" { "all" }
                            @for namespace in namespaces {
                                option selected[self.namespace.as_deref() == Some(*namespace)] { (namespace) }
                            }
                        }
                    }
                }
                label { "Offer" input name="offer" value=(value(&self.offer)); }
                label {
                    "Compliance"
                    select name="compliance" {
                        option value="" { "all" }
                        @for compliance in Compliance::WORST_FIRST {
                            option selected[self.compliance == Some(compliance)] { (compliance.name()) }
                        }
                    }
                }
                label { "Text" input type="search" name="q" value=(value(&self.text)); }
                button { "Filter" }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.namespace.is_none()
            && self.offer.is_none()
            && self.compliance.is_none()
            && self.text.is_none()
    }
}

/// Returns whether the binding's `namespace/name`, its reason or the name of a target contains
/// `text`, which is in lower case.
fn has_text(binding: &ConstraintPolicyBinding, text: &str) -> bool {
    let has = |field: &str| field.to_lowercase().contains(text);
    let targets = &binding.spec.targets;
    let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
    has(&format!("{namespace}/{}", binding.name_any()))
        || binding
            .status
            .as_ref()
            .is_some_and(|s| has(&s.first_reason))
        || targets.values().any(|target| has(&target.name))
}
