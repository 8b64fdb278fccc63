//! Applies one mutation of a policy to an object, as an apply configuration or as a JSON patch.

use serde_json::Value as Json;
use tautline_structured_merge::Schema;

use crate::json_patch::{self, PatchError};
use crate::model::PatchType;
use crate::outcome::FaultKind;
use crate::resolver::PolicyResolver;
use crate::strict_decoding;
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

/// The schemas of the object's kind.
#[derive(Default)]
pub(crate) struct ObjectSchemas {
    /// The schema by which configurations are merged.
    pub merged: Option<Schema>,
    /// The schema of a built-in kind, whose objects are pruned and decoded strictly.
    pub built_in: Option<Schema>,
}

pub(crate) struct CompiledMutation {
    pub field: String,
    pub patch: PatchType,
    pub program: Program,
}

impl CompiledMutation {
    /// Returns the object after the mutation, without defaults; `None` if a `test` failed.
    pub fn apply(
        &self,
        resolver: &PolicyResolver<'_>,
        schemas: &ObjectSchemas,
        budget: &mut Budget,
    ) -> Result<Option<Json>, MutationError> {
        let value = self.program.evaluate(resolver, budget)?;
        let object = &*resolver.object.json;
        match self.patch {
            PatchType::ApplyConfiguration => configure(object, &value, schemas).map(Some),
            PatchType::JsonPatch => patch(object, &value, schemas, budget),
        }
    }
}

fn configure(object: &Json, value: &Value, schemas: &ObjectSchemas) -> Result<Json, MutationError> {
    let fault = |message: String| MutationError(FaultKind::Patch, message);
    let Some(schema) = &schemas.merged else {
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
    tautline_structured_merge::apply(schema, object, &configuration)
        .map_err(|error| fault(format!("error applying patch: {error}")))
}

fn patch(
    object: &Json,
    value: &Value,
    schemas: &ObjectSchemas,
    budget: &mut Budget,
) -> Result<Option<Json>, MutationError> {
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
    let mut patched = object.clone();
    match json_patch::apply(&mut patched, &operations, budget) {
        Ok(()) => {}
        Err(PatchError::Test(_)) => return Ok(None),
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
    if let Some(own) = &schemas.built_in {
        strict_decoding::check(own, &patched)
            .map_err(|invalid| MutationError(FaultKind::Object, invalid.0))?;
    }
    Ok(Some(patched))
}
