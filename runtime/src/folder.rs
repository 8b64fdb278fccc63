//! Manifest folders: the same objects as a cluster's, from files.

use std::path::{Path, PathBuf};

use tautline_api::{
    convert,
    manifest::{self, Item},
};
use tautline_core::index::Object;

/// A file of a folder that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {what}")]
pub struct FolderError {
    pub path: PathBuf,
    pub what: String,
}

/// Reads every `.yaml`, `.yml` and `.json` file below `dir` (or `dir` itself if
/// it is a file), by name.
///
/// # Errors
/// The first file that cannot be read or is malformed.
pub fn read(dir: &Path) -> Result<Vec<Item>, FolderError> {
    let mut files = Vec::new();
    collect(dir, &mut files)?;
    files.sort();
    let mut items = Vec::new();
    for path in files {
        let fail = |what: String| FolderError {
            path: path.clone(),
            what,
        };
        let text = std::fs::read_to_string(&path).map_err(|e| fail(e.to_string()))?;
        items.extend(manifest::parse(&text).map_err(|e| fail(e.to_string()))?);
    }
    if items.is_empty() {
        let what = "holds no manifests (.yaml, .yml, .json)".to_owned();
        return Err(FolderError {
            path: dir.to_owned(),
            what,
        });
    }
    Ok(items)
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), FolderError> {
    let fail = |e: std::io::Error| FolderError {
        path: path.to_owned(),
        what: e.to_string(),
    };
    if path.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in std::fs::read_dir(path).map_err(fail)? {
        let entry = entry.map_err(fail)?.path();
        let manifest = entry
            .extension()
            .is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
        if entry.is_dir() || manifest {
            collect(&entry, files)?;
        }
    }
    Ok(())
}

/// What the index keeps of a manifest; `None` for kinds that it does not.
///
/// # Errors
/// A field that cannot be used, with the object's name.
pub fn object(item: &Item) -> Result<Option<Object>, String> {
    let named = |kind: &str, meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
        let namespace = meta.namespace.as_deref().unwrap_or("default");
        format!(
            "{kind} {namespace}/{}",
            meta.name.as_deref().unwrap_or_default()
        )
    };
    Ok(Some(match item {
        Item::Pod(o) => Object::Pod(convert::pod(o)),
        Item::Node(o) => Object::Node(convert::node(o)),
        Item::Service(o) => Object::Service(convert::service(o)),
        Item::EndpointSlice(o) => Object::EndpointSlice(convert::endpoint_slice(o)),
        Item::Policy(o) => Object::Policy(
            convert::policy(o)
                .map_err(|e| format!("{}: {e}", named("ConstraintPolicy", &o.metadata)))?,
        ),
        Item::Offer(o) => Object::Offer(
            convert::offer(o)
                .map_err(|e| format!("{}: {e}", named("ConstraintPolicyOffer", &o.metadata)))?,
        ),
        Item::ConfigMap(_) | Item::CostProvider(_) | Item::RuleProvider(_) | Item::Other(_) => {
            return Ok(None);
        }
    }))
}
