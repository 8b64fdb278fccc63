//! One mutation: its expression worked out, and what comes out put into the
//! object.

use serde_json::Value as Json;
use tautline_structured_merge::Schema;

use crate::draft::Draft;
use crate::json_patch::{self, PatchError};
use crate::model::PatchType;
use crate::names::Scope;
use crate::outcome::FaultKind;
use crate::strict;
use tautline_cel::{Budget, EvaluationError, Program, Value};

/// Why a mutation failed.
#[derive(Debug)]
pub(crate) enum StepError {
    /// The failurePolicy says what follows.
    Fault(FaultKind, String),
    /// The request ends here, whatever the failurePolicy: the API server takes
    /// what a JSON patch made of the object for an error of its own.
    Abort(String),
}

impl From<EvaluationError> for StepError {
    fn from(error: EvaluationError) -> Self {
        let kind = if error.is_exhausted() {
            FaultKind::Budget
        } else {
            FaultKind::Expression
        };
        Self::Fault(kind, error.to_string())
    }
}

/// What is known of the object and its type.
#[derive(Default)]
pub(crate) struct Known {
    /// The kind's type.
    pub schema: Option<Schema>,
    /// That again if the kind is one of the API server's own.
    pub own: Option<Schema>,
    /// Whether the object is of the kind's type, as a merge has left it.
    pub sound: bool,
    /// Whether it is what the strict decoder takes.
    pub strict: bool,
    /// Whether it has its defaults: setting them again changes nothing.
    pub settled: bool,
}

/// A mutation, compiled.
pub(crate) struct Mutator {
    pub field: String,
    pub patch: PatchType,
    pub program: Program,
}

impl Mutator {
    /// Makes the draft the object after the mutation, without new defaults; false if
    /// nothing is merged into it, a patch leaves a settled one as it is, or its
    /// `test` failed.
    pub fn run(
        &self,
        scope: &Scope<'_>,
        known: &Known,
        draft: &mut Draft,
        budget: &mut Budget,
    ) -> Result<bool, StepError> {
        let value = self.program.evaluate(scope, budget)?;
        let object = &*scope.object.json;
        match self.patch {
            PatchType::ApplyConfiguration => configure(object, &value, known, draft),
            PatchType::JsonPatch => patch(object, &value, known, draft, budget),
        }
    }
}

fn configure(
    object: &Json,
    value: &Value,
    known: &Known,
    draft: &mut Draft,
) -> Result<bool, StepError> {
    let fault = |message: String| StepError::Fault(FaultKind::Patch, message);
    let Some(schema) = &known.schema else {
        let message = format!(
            "the schema of {} {} is not known, so nothing can be merged into it",
            object["apiVersion"], object["kind"]
        );
        return Err(fault(message));
    };
    let configuration = value.to_json()?;
    if !configuration.is_object() {
        return Err(fault("the configuration is no object".to_owned()));
    }
    let checked =
        tautline_structured_merge::check_apply(schema, object, configuration, known.sound)
            .map_err(|error| fault(format!("error applying patch: {error}")))?;
    let Some(checked) = checked else {
        return Ok(false);
    };
    checked.merge_into(draft.of(object));
    Ok(true)
}

fn patch(
    object: &Json,
    value: &Value,
    known: &Known,
    draft: &mut Draft,
    budget: &mut Budget,
) -> Result<bool, StepError> {
    let Value::List(operations) = value else {
        let message = "the expression's value is no list of JSONPatch".to_owned();
        return Err(StepError::Fault(FaultKind::Expression, message));
    };
    let operations = operations.iter().map(|operation| match operation {
        Value::Patch(patch) => Ok(&**patch),
        other => {
            let message = format!("{} in the list, which holds JSONPatch", other.type_name());
            Err(StepError::Fault(FaultKind::Expression, message))
        }
    });
    let operations: Vec<_> = operations.collect::<Result<_, _>>()?;
    if known.strict && known.settled && operations.is_empty() {
        return Ok(false);
    }
    let patched = draft.of(object);
    match json_patch::apply(patched, &operations, budget) {
        Ok(()) => {}
        Err(PatchError::Test(_)) => return Ok(false),
        Err(PatchError::Exhausted(error)) => return Err(error.into()),
        Err(error) => {
            return Err(StepError::Fault(
                FaultKind::Patch,
                format!("JSON Patch: {error}"),
            ));
        }
    }
    for field in ["apiVersion", "kind"] {
        if patched.get(field) != object.get(field) {
            return Err(StepError::Abort(format!("a JSON patch changes {field}")));
        }
    }
    if known.strict && known.settled && patched == object {
        return Ok(false);
    }
    if let Some(own) = &known.own {
        let before = if known.strict { object } else { &Json::Null };
        strict::check(own, patched, before).map_err(StepError::Abort)?;
    }
    Ok(true)
}
