//! Applies one mutation of a policy to an object, as an apply configuration or as a JSON patch.

use serde_json::Value as Json;
use tautline_structured_merge::Schema;

use crate::json_patch::{self, PatchError};
use crate::model::PatchType;
use crate::outcome::FaultKind;
use crate::resolver::PolicyResolver;
use crate::strict_decoding;
use crate::working_copy::WorkingCopy;
use tautline_cel::{Budget, EvaluationError, Program, Value};

/// An error of a mutation, to which the failurePolicy applies.
#[derive(Debug)]
pub(crate) struct MutationError(pub FaultKind, pub String);

impl From<EvaluationError> for MutationError {
    fn from(error: EvaluationError) -> Self {
        let kind = if error.is_exhausted() {
            FaultKind::Budget
        } else {
            FaultKind::Expression
        };
        Self(kind, error.to_string())
    }
}

/// The state of the object, which avoids repeated checks.
#[derive(Default)]
pub(crate) struct ObjectState {
    pub schema: Option<Schema>,
    pub built_in: Option<Schema>,
    /// True if a merge has checked the object against the schema.
    pub matches_schema: bool,
    /// True if the strict decoder accepts the object.
    pub strictly_valid: bool,
    /// True if defaults are set, so that setting them again changes nothing.
    pub defaulted: bool,
}

pub(crate) struct CompiledMutation {
    pub field: String,
    pub patch: PatchType,
    pub program: Program,
}

impl CompiledMutation {
    /// Changes the working copy without setting defaults. Returns false if nothing changes or a
    /// `test` failed.
    pub fn apply(
        &self,
        resolver: &PolicyResolver<'_>,
        state: &ObjectState,
        copy: &mut WorkingCopy,
        budget: &mut Budget,
    ) -> Result<bool, MutationError> {
        let value = self.program.evaluate(resolver, budget)?;
        let object = &*resolver.object.json;
        match self.patch {
            PatchType::ApplyConfiguration => configure(object, &value, state, copy),
            PatchType::JsonPatch => patch(object, &value, state, copy, budget),
        }
    }
}

fn configure(
    object: &Json,
    value: &Value,
    state: &ObjectState,
    copy: &mut WorkingCopy,
) -> Result<bool, MutationError> {
    let fault = |message: String| MutationError(FaultKind::Patch, message);
    let Some(schema) = &state.schema else {
        let message = format!(
            "the schema of {} {} is unknown, so nothing can be merged into it",
            object["apiVersion"], object["kind"]
        );
        return Err(fault(message));
    };
    let configuration = value.to_json()?;
    if !configuration.is_object() {
        return Err(fault("the configuration is not an object".to_owned()));
    }
    let checked =
        tautline_structured_merge::check_apply(schema, object, configuration, state.matches_schema)
            .map_err(|error| fault(format!("error applying patch: {error}")))?;
    let Some(checked) = checked else {
        return Ok(false);
    };
    checked.merge_into(copy.copy_of(object));
    Ok(true)
}

fn patch(
    object: &Json,
    value: &Value,
    state: &ObjectState,
    copy: &mut WorkingCopy,
    budget: &mut Budget,
) -> Result<bool, MutationError> {
    let Value::List(operations) = value else {
        let message = "the expression's value is not a list of JSONPatch".to_owned();
        return Err(MutationError(FaultKind::Expression, message));
    };
    let operations = operations.iter().map(|operation| match operation {
        Value::Patch(patch) => Ok(&**patch),
        other => {
            let message = format!("{} in the list, which holds JSONPatch", other.type_name());
            Err(MutationError(FaultKind::Expression, message))
        }
    });
    let operations: Vec<_> = operations.collect::<Result<_, _>>()?;
    if state.strictly_valid && state.defaulted && operations.is_empty() {
        return Ok(false);
    }
    let patched = copy.copy_of(object);
    match json_patch::apply(patched, &operations, budget) {
        Ok(()) => {}
        Err(PatchError::Test(_)) => return Ok(false),
        Err(PatchError::Exhausted(error)) => return Err(error.into()),
        Err(error) => {
            let message = format!("JSON Patch: {error}");
            return Err(MutationError(FaultKind::Patch, message));
        }
    }
    for field in ["apiVersion", "kind"] {
        if patched.get(field) != object.get(field) {
            let message = format!("a JSON patch changes {field}");
            return Err(MutationError(FaultKind::Object, message));
        }
    }
    if state.strictly_valid && state.defaulted && patched == object {
        return Ok(false);
    }
    if let Some(own) = &state.built_in {
        let before = if state.strictly_valid {
            object
        } else {
            &Json::Null
        };
        strict_decoding::check(own, patched, before)
            .map_err(|invalid| MutationError(FaultKind::Object, invalid.0))?;
    }
    Ok(true)
}
