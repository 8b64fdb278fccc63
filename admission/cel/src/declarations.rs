use std::borrow::Cow;
use std::sync::Arc;

use crate::program::Program;
use crate::types::Type;

/// The schema of the object that `Object{..}` builds a part of.
pub trait ObjectSchema: Send + Sync {
    /// Returns whether the object has the field, or `None` if the schema does not say. The path
    /// consists of field names from the root; lists and maps on the way are skipped.
    fn has_field(&self, path: &[&str]) -> Option<bool>;
}

/// Returns the type of a record's field; `None` if the record has no such field.
pub(crate) type RecordFields = fn(record: &str, field: &str) -> Option<Type>;

#[derive(Clone, Default)]
pub(crate) struct Declarations {
    pub names: Vec<(Cow<'static, str>, Type)>,
    /// The names and programs of `variables.<name>`, in the order of declaration.
    pub variables: Vec<(String, Program)>,
    pub record_fields: Option<RecordFields>,
    pub patch_types: bool,
    pub object_schema: Option<Arc<dyn ObjectSchema>>,
}

impl Declarations {
    pub fn type_of(&self, name: &str) -> Option<&Type> {
        let mut names = self.names.iter();
        names.find(|(other, _)| other == name).map(|(_, ty)| ty)
    }

    /// Returns the program of `variables.<name>`, the latest one if several have the name.
    pub fn variable(&self, name: &str) -> Option<&Program> {
        let mut latest = self.variables.iter().rev();
        latest.find(|(other, _)| other == name).map(|(_, p)| p)
    }
}
