use std::borrow::Cow;
use std::sync::Arc;

use crate::program::Program;
use crate::types::Type;

/// The schema of the object that `Object{..}` builds a part of.
pub trait ObjectSchema: Send + Sync {
    /// Whether the object has the field. The path consists of field names from the
    /// root; lists and maps on the way are skipped. `None`: unknown.
    fn has_field(&self, path: &[&str]) -> Option<bool>;
}

/// The type of a record's field; `None`: the record has no such field.
pub(crate) type RecordFields = fn(record: &str, field: &str) -> Option<Type>;

#[derive(Clone, Default)]
pub(crate) struct Declarations {
    pub names: Vec<(Cow<'static, str>, Type)>,
    /// `variables.<name>`, in the order of declaration.
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

    /// The program of `variables.<name>`; the latest of equal names.
    pub fn variable(&self, name: &str) -> Option<&Program> {
        let mut latest = self.variables.iter().rev();
        latest.find(|(other, _)| other == name).map(|(_, p)| p)
    }
}
