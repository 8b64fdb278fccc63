//! Reads kubeconfigs as kubectl does, with errors that name the file, the field and the fix.

mod data;
mod proxy;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use hyper::Uri;
use kube::{
    Config,
    config::{AuthInfo, Cluster, Context, ExecAuthCluster},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tautline_api::manifest;
use tautline_core::text::shorten;
use tautline_runtime::input_files::InputFiles;

/// The kubeconfig files. If several have an entry of the same name, the first one counts.
#[derive(Debug, Default)]
pub(crate) struct Kubeconfigs {
    files: Vec<(PathBuf, Value)>,
    /// The files of `KUBECONFIG` that do not exist, if no file does.
    pub(crate) missing: Vec<PathBuf>,
}

impl Kubeconfigs {
    /// Reads this file, which must exist; else the files of `KUBECONFIG` that exist, else
    /// `~/.kube/config`.
    pub(crate) fn read(file: Option<&Path>) -> Result<Self> {
        if let Some(file) = file {
            return Self::of(&[file.to_owned()]);
        }
        let list = std::env::var_os("KUBECONFIG").unwrap_or_default();
        let listed = std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty());
        let mut paths: Vec<PathBuf> = listed.collect();
        let named = paths.clone();
        if paths.is_empty() {
            paths.extend(std::env::home_dir().map(|home| home.join(".kube/config")));
        }
        paths.retain(|path| path.exists());
        let mut read = Self::of(&paths)?;
        if paths.is_empty() {
            read.missing = named;
        }
        Ok(read)
    }

    fn of(paths: &[PathBuf]) -> Result<Self> {
        let mut inputs = InputFiles::default();
        let mut read = |path: &PathBuf| -> Result<Value> {
            let text = inputs.named(path).map_err(Error::msg)?;
            let first = manifest::documents(&text)?.into_iter().next();
            Ok(first.map_or(Value::Null, |document| document.value))
        };
        let file = |path: &PathBuf| {
            let value = read(path).with_context(|| format!("kubeconfig {}", path.display()))?;
            Ok((path.clone(), value))
        };
        Ok(Self {
            files: paths.iter().map(file).collect::<Result<_>>()?,
            missing: Vec::new(),
        })
    }

    /// Returns the name of the context that is used; `None` if no file sets one.
    pub(crate) fn current_context(&self) -> Option<&str> {
        let set = self
            .files
            .iter()
            .filter_map(|(_, file)| file["current-context"].as_str());
        set.map(str::trim).find(|name| !name.is_empty())
    }

    /// Makes the connection of a context.
    pub(crate) fn config(&self, context: &str) -> Result<Config> {
        let context: Context = self.entry("context", context)?.decode()?;
        let of_cluster = self.entry("cluster", &context.cluster)?;
        // Without a user of this name kubectl goes on without credentials.
        let of_user = context
            .user
            .as_deref()
            .and_then(|user| self.entry("user", user).ok());

        let mut cluster: Cluster = of_cluster.decode()?;
        let authority = data::authority(&of_cluster)?;
        let mut user = AuthInfo::default();
        if let Some(entry) = of_user {
            user = data::credentials(entry)?;
        }
        let has_certificate =
            user.client_certificate.is_some() || user.client_certificate_data.is_some();
        let accepts_any = cluster.insecure_skip_tls_verify == Some(true);
        let is_secure = authority.is_some() || has_certificate || accepts_any;
        let named = cluster.server.take().unwrap_or_default();
        let server = server_url(&named, is_secure).with_context(|| of_cluster.at("server"))?;
        cluster.server = Some(server.to_string());
        if let Some(exec) = user.exec.as_mut().filter(|exec| exec.provide_cluster_info) {
            exec.cluster = Some(ExecAuthCluster::try_from(&cluster)?);
        }
        let mut config = Config::new(server);
        config.root_cert = authority;
        config.accept_invalid_certs = accepts_any;
        config.disable_compression = cluster.disable_compression == Some(true);
        config.tls_server_name = cluster.tls_server_name;
        config.auth_info = user;
        if let Some(namespace) = context.namespace {
            config.default_namespace = namespace;
        }
        // A proxy of the kubeconfig holds for every server; NO_PROXY applies to the environment's
        // proxy only.
        config.proxy_url = match &cluster.proxy_url {
            Some(url) => Some(proxy::parse(url, &of_cluster.at("proxy-url"))?),
            None => environment_proxy(&config.cluster_url)?,
        };
        Ok(config)
    }

    /// Returns the first entry of this kind and name, such as a `context` of `contexts`.
    fn entry(&self, kind: &'static str, name: &str) -> Result<Entry> {
        let list = format!("{kind}s");
        let of = |file: &Value| {
            let mut entries = file[&list].as_array().into_iter().flatten();
            entries
                .find(|entry| entry["name"] == name)
                .map(|entry| entry[kind].clone())
        };
        let found = self
            .files
            .iter()
            .find_map(|(path, file)| Some((path, of(file)?)));
        let Some((path, value)) = found else {
            let all = self
                .files
                .iter()
                .flat_map(|(_, file)| file[&list].as_array());
            let all: Vec<&str> = all.flatten().filter_map(|e| e["name"].as_str()).collect();
            bail!(
                "kubeconfig {}: {list}: there is none of the name {:?}; correct the name, or \
                 choose another with --context; there are: {}",
                self.paths(),
                shorten(name),
                shorten(&all.join(", "))
            );
        };
        let at = format!(
            "kubeconfig {}: {list}[{}].{kind}",
            path.display(),
            shorten(name)
        );
        let folder = path.parent().unwrap_or(Path::new(""));
        Ok(Entry {
            at,
            value: data::normal(value, folder),
        })
    }

    /// Returns the paths of the files, for errors.
    pub(crate) fn paths(&self) -> String {
        list(self.files.iter().map(|(path, _)| path))
    }

    /// Returns the paths of the files that do not exist.
    pub(crate) fn missing_paths(&self) -> String {
        list(self.missing.iter())
    }

    /// Returns whether there is no context to choose.
    pub(crate) fn is_empty(&self) -> bool {
        let mut contexts = self.files.iter().map(|(_, file)| &file["contexts"]);
        contexts.all(|list| list.as_array().is_none_or(Vec::is_empty))
    }
}

fn list<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> String {
    let paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

/// A context, cluster or user of a file.
struct Entry {
    /// The file and the place in it.
    at: String,
    value: Value,
}

impl Entry {
    /// Returns the place of a field of the entry, for errors.
    fn at(&self, field: &str) -> String {
        format!("{}.{field}", self.at)
    }

    fn decode<T: DeserializeOwned>(&self) -> Result<T> {
        serde_path_to_error::deserialize(&self.value).map_err(|error| {
            // The value may be a secret.
            let (path, error) = (error.path().to_string(), error.into_inner().to_string());
            let expected = error.rsplit_once("expected ");
            let what = expected.map_or(error.clone(), |(_, form)| format!("is not {form}"));
            anyhow!("{}: {what}; correct it", self.at(&path))
        })
    }
}

/// Returns the proxy that the environment sets for a server.
pub(crate) fn environment_proxy(server: &Uri) -> Result<Option<Uri>> {
    proxy::from_environment(server, |name| std::env::var(name).ok())
}

/// Returns the URL of a server, which may be `HOST:PORT`, as kubectl completes it.
fn server_url(server: &str, is_secure: bool) -> Result<Uri> {
    let fix = "write https://HOST:PORT";
    if server.is_empty() {
        bail!("is empty; {fix}");
    }
    let scheme = if is_secure { "https" } else { "http" };
    let url = if server.contains("://") {
        server.to_owned()
    } else {
        format!("{scheme}://{server}")
    };
    let Ok(uri) = url.parse::<Uri>() else {
        bail!("{:?} is not a URL; {fix}", shorten(server));
    };
    let has_path = !server.contains("://") && !matches!(uri.path(), "" | "/");
    match uri.scheme_str() {
        _ if has_path || uri.host().is_none_or(str::is_empty) => {
            bail!("{:?} is not a URL; {fix}", shorten(server))
        }
        Some("http" | "https") => Ok(uri),
        _ => bail!("{:?} is neither https nor http; {fix}", shorten(server)),
    }
}

#[cfg(test)]
#[path = "kubeconfig/tests.rs"]
mod tests;
