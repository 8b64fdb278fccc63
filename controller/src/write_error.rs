//! The reasons why writes to the API server fail.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("it is gone, or another of its name has come")]
    Gone,
    #[error("an object of this name exists already")]
    Exists,
    #[error("{0}")]
    Refused(String),
    #[error("the API server did not answer within {0:?}")]
    Timeout(Duration),
}

impl WriteError {
    pub(crate) fn from_status(status: u16, reason: &str, message: String) -> Self {
        match (status, reason) {
            (404, _) => Self::Gone,
            (409, "AlreadyExists") => Self::Exists,
            // The object was replaced by another one of the same name.
            (409, _) if message.contains("Precondition failed") => Self::Gone,
            _ => Self::Refused(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: u16, reason: &str, message: &str) -> WriteError {
        WriteError::from_status(status, reason, message.to_owned())
    }

    #[test]
    fn write_to_a_missing_object_is_gone() {
        assert_eq!(error(404, "NotFound", "x"), WriteError::Gone);
    }

    #[test]
    fn write_to_another_object_of_the_name_is_gone() {
        let message = "Precondition failed: UID in precondition: a, UID in object meta: b";
        assert_eq!(error(409, "Conflict", message), WriteError::Gone);
    }

    #[test]
    fn creation_of_an_existing_object_says_so() {
        assert_eq!(error(409, "AlreadyExists", "x"), WriteError::Exists);
    }

    #[test]
    fn other_conflicts_and_errors_are_refusals() {
        for (status, reason) in [(409, "Conflict"), (403, "Forbidden"), (500, "")] {
            let refused = WriteError::Refused("why".to_owned());
            assert_eq!(error(status, reason, "why"), refused);
        }
    }
}
