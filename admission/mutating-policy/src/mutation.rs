//! One mutation: its expression worked out, and what comes out put into the
//! object.

use serde_json::Value as Json;
use tautline_structured_merge::Schema;

use crate::json_patch::{self, PatchError};
use crate::model::PatchType;
use crate::outcome::FaultKind;
use crate::resolver::PolicyResolver;
use crate::strict_decoding;
use crate::working_copy::WorkingCopy;
use tautline_cel::{Budget, EvaluationError, Program, Value};

/// Why a mutation failed.
#[derive(Debug)]
pub(crate) enum MutationError {
    /// The failurePolicy says what follows.
    Fault(FaultKind, String),
    /// The request ends here, whatever the failurePolicy: the API server takes
    /// what a JSON patch made of the object for an error of its own.
    Abort(String),
}

impl From<EvaluationError> for MutationError {
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
pub(crate) struct ObjectState {
    /// The kind's type.
    pub schema: Option<Schema>,
    /// That again if the kind is one of the API server's own.
    pub built_in: Option<Schema>,
    /// Whether the object is of the kind's type, as a merge has left it.
    pub matches_schema: bool,
    /// Whether it is what the strict decoder takes.
    pub strictly_valid: bool,
    /// Whether it has its defaults: setting them again changes nothing.
    pub defaulted: bool,
}

/// A mutation, compiled.
pub(crate) struct CompiledMutation {
    pub field: String,
    pub patch: PatchType,
    pub program: Program,
}

impl CompiledMutation {
    /// Makes the draft the object after the mutation, without new defaults; false if
    /// nothing is merged into it, a patch leaves a settled one as it is, or its
    /// `test` failed.
    pub fn apply(
        &self,
        scope: &PolicyResolver<'_>,
        known: &ObjectState,
        draft: &mut WorkingCopy,
        budget: &mut Budget,
    ) -> Result<bool, MutationError> {
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
    known: &ObjectState,
    draft: &mut WorkingCopy,
) -> Result<bool, MutationError> {
    let fault = |message: String| MutationError::Fault(FaultKind::Patch, message);
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
        tautline_structured_merge::check_apply(schema, object, configuration, known.matches_schema)
            .map_err(|error| fault(format!("error applying patch: {error}")))?;
    let Some(checked) = checked else {
        return Ok(false);
    };
    checked.merge_into(draft.copy_of(object));
    Ok(true)
}

fn patch(
    object: &Json,
    value: &Value,
    known: &ObjectState,
    draft: &mut WorkingCopy,
    budget: &mut Budget,
) -> Result<bool, MutationError> {
    let Value::List(operations) = value else {
        let message = "the expression's value is no list of JSONPatch".to_owned();
        return Err(MutationError::Fault(FaultKind::Expression, message));
    };
    let operations = operations.iter().map(|operation| match operation {
        Value::Patch(patch) => Ok(&**patch),
        other => {
            let message = format!("{} in the list, which holds JSONPatch", other.type_name());
            Err(MutationError::Fault(FaultKind::Expression, message))
        }
    });
    let operations: Vec<_> = operations.collect::<Result<_, _>>()?;
    if known.strictly_valid && known.defaulted && operations.is_empty() {
        return Ok(false);
    }
    let patched = draft.copy_of(object);
    match json_patch::apply(patched, &operations, budget) {
        Ok(()) => {}
        Err(PatchError::Test(_)) => return Ok(false),
        Err(PatchError::Exhausted(error)) => return Err(error.into()),
        Err(error) => {
            return Err(MutationError::Fault(
                FaultKind::Patch,
                format!("JSON Patch: {error}"),
            ));
        }
    }
    for field in ["apiVersion", "kind"] {
        if patched.get(field) != object.get(field) {
            return Err(MutationError::Abort(format!(
                "a JSON patch changes {field}"
            )));
        }
    }
    if known.strictly_valid && known.defaulted && patched == object {
        return Ok(false);
    }
    if let Some(own) = &known.built_in {
        let before = if known.strictly_valid {
            object
        } else {
            &Json::Null
        };
        strict_decoding::check(own, patched, before).map_err(MutationError::Abort)?;
    }
    Ok(true)
}
