//! Runs programs of the driver in the root directory where the driver is installed.
//!
//! The programs are dynamic, so they need the libraries of that root, and the image of this process
//! has neither a `chroot` program nor a linker. The process therefore starts itself again with a
//! hidden subcommand, which changes its root and executes the program ([`exec_in_root`]).

use std::{
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

/// The directories of the driver's programs and of their libraries, below its root: those of
/// distributions, of Google's installer, and of this installer on Container-Optimized OS.
const DIRECTORIES: [(&str, &str); 3] = [
    ("usr/bin", ""),
    ("usr/local/nvidia/bin", "/usr/local/nvidia/lib64"),
    (
        "home/kubernetes/bin/nvidia/bin",
        "/home/kubernetes/bin/nvidia/lib64",
    ),
];
const SYSTEM_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The reason why a program of the driver failed.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The program is not installed.
    #[error(
        "{program} is not below {root} (in {}); set --driver-root to the directory where the \
         driver is installed, such as /run/nvidia/driver with NVIDIA's GPU operator",
        DIRECTORIES.map(|(d, _)| d).join(", ")
    )]
    Missing {
        /// The name of the program.
        program: String,
        /// The driver's root.
        root: String,
    },
    /// The program did not start, or its pipes broke.
    #[error("{0} cannot run: {1}")]
    Io(String, #[source] io::Error),
    /// The program did not end before the deadline.
    #[error("{0} did not answer in {1:?}")]
    Deadline(String, Duration),
    /// The program reported a failure.
    #[error("{0} failed: {1}")]
    Failed(String, String),
}

/// The root directory of an installed driver.
#[derive(Clone, Debug)]
pub struct DriverRoot {
    root: PathBuf,
    helper: Vec<OsString>,
}

impl DriverRoot {
    /// Creates a root; unless it is `/`, its programs start by `agent mps-exec` of this process's
    /// executable.
    ///
    /// # Errors
    /// The path of the executable is not known.
    pub fn new(root: impl Into<PathBuf>) -> io::Result<Self> {
        let executable = std::env::current_exe()?.into_os_string();
        let helper = vec![executable, "agent".into(), "mps-exec".into()];
        Ok(Self::with_helper(root, helper))
    }

    /// Creates a root; unless it is `/`, its programs start by the command `helper`, to which
    /// `--root DIR -- PROGRAM ARGUMENTS...` is appended.
    pub fn with_helper(root: impl Into<PathBuf>, helper: Vec<OsString>) -> Self {
        let root = root.into();
        Self { root, helper }
    }

    /// Returns a command for a program, with only the environment that the program needs. Its
    /// process ends when the handle is dropped.
    ///
    /// # Errors
    /// The program is not installed.
    pub fn command(&self, program: &str) -> Result<Command, DriverError> {
        let found = DIRECTORIES.iter().find(|(directory, _)| {
            let path = self.root.join(directory).join(program);
            path.is_file()
        });
        let Some((directory, libraries)) = found else {
            return Err(DriverError::Missing {
                program: program.to_owned(),
                root: self.root.display().to_string(),
            });
        };
        let path = format!("/{directory}/{program}");
        let mut command = match self.helper.split_first() {
            Some((helper, arguments)) if self.root != Path::new("/") => {
                let mut command = Command::new(helper);
                command.args(arguments).arg("--root").arg(&self.root);
                command.arg("--").arg(path);
                command
            }
            _ => Command::new(path),
        };
        command.env_clear();
        command.env("PATH", format!("/{directory}:{SYSTEM_PATH}"));
        if !libraries.is_empty() {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command.kill_on_drop(true);
        Ok(command)
    }
}

/// Runs a command to its end with `input` as its standard input, and returns its output.
pub(super) async fn output(
    name: &str,
    mut command: Command,
    input: &str,
    deadline: Duration,
) -> Result<Output, DriverError> {
    let io_error = |e| DriverError::Io(name.to_owned(), e);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(io_error)?;
    let pipe = child.stdin.take();
    let run = async {
        if let Some(mut pipe) = pipe {
            // A program that needs no input may have closed the pipe.
            _ = pipe.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await.map_err(io_error)
    };
    match timeout(deadline, run).await {
        Ok(output) => output,
        Err(_) => Err(DriverError::Deadline(name.to_owned(), deadline)),
    }
}

/// Runs a command as [`output`] does, and returns its standard output. Fails if the command does.
pub(super) async fn run(
    name: &str,
    command: Command,
    input: &str,
    deadline: Duration,
) -> Result<String, DriverError> {
    let output = output(name, command, input, deadline).await?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(DriverError::Failed(name.to_owned(), complaint(&output)))
}

/// Returns the first line with text of standard error or else of standard output, cut to 300
/// characters; the exit status if there is none.
pub(super) fn complaint(output: &Output) -> String {
    let texts = [&output.stderr, &output.stdout].map(|t| String::from_utf8_lossy(t));
    let mut lines = texts.iter().flat_map(|t| t.lines()).map(str::trim);
    let line = lines.find(|line| !line.is_empty());
    let line: String = line.unwrap_or_default().chars().take(300).collect();
    if line.is_empty() {
        output.status.to_string()
    } else {
        line
    }
}

/// Replaces this process with a program in another root directory; returns only on failure. Needs
/// CAP_SYS_CHROOT.
pub fn exec_in_root(root: &Path, program: &Path, arguments: &[OsString]) -> io::Error {
    if let Err(e) = nix::unistd::chroot(root) {
        return e.into();
    }
    if let Err(e) = std::env::set_current_dir("/") {
        return e;
    }
    let mut command = std::process::Command::new(program);
    command.args(arguments).exec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VARIABLE: &str = "TAUTLINE_TEST_EXEC_IN_ROOT";

    /// Replaces the process that the test below starts; nothing otherwise.
    #[test]
    fn replaced_process() {
        if std::env::var_os(VARIABLE).is_some() {
            let error = exec_in_root(Path::new("/"), Path::new("/bin/pwd"), &[]);
            panic!("not replaced: {error}");
        }
    }

    #[test]
    fn exec_in_root_replaces_the_process() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "limits::driver_root::tests::replaced_process";
        command.args(["--exact", name, "--nocapture"]);
        let output = command.env(VARIABLE, "1").output().unwrap();
        let texts = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&texts);
        if text.contains("EPERM") {
            eprintln!("skipped: a change of root needs CAP_SYS_CHROOT");
            return;
        }
        assert!(text.ends_with("\n/\n"), "{text}");
    }

    #[test]
    fn command_of_google_os_finds_its_libraries() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("home/kubernetes/bin/nvidia/bin");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("nvidia-smi"), "").unwrap();
        let driver = DriverRoot::with_helper(root.path(), vec!["helper".into(), "x".into()]);
        let command = driver.command("nvidia-smi").unwrap();
        let command = command.as_std();
        let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
        let path = "/home/kubernetes/bin/nvidia/bin/nvidia-smi";
        let root = root.path().to_string_lossy();
        assert_eq!(arguments, ["x", "--root", &root, "--", path]);
        let variables = command.get_envs();
        let variables: Vec<_> = variables
            .filter_map(|(k, v)| Some((k.to_str()?, v?.to_str()?)))
            .collect();
        assert_eq!(
            variables,
            [
                ("LD_LIBRARY_PATH", "/home/kubernetes/bin/nvidia/lib64"),
                (
                    "PATH",
                    "/home/kubernetes/bin/nvidia/bin:/usr/sbin:/usr/bin:/sbin:/bin"
                ),
            ]
        );
    }
}
