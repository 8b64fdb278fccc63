//! Reads the files that a user names, with bounds: a device without an end and a pipe without a
//! writer are errors.

use std::{
    fs::{File, FileType},
    io::Read,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    sync::mpsc,
    time::Duration,
};

use tautline_api::manifest;

/// The path of the standard input.
pub const STDIN: &str = "-";

/// The files of one command, which share a bound on their size.
#[derive(Debug)]
pub struct InputFiles {
    file_bytes: u64,
    /// The bytes that the files still to be read may have together.
    left_bytes: u64,
    /// The time to wait for the writer of a pipe.
    patience: Duration,
    /// The resolved folder that all files must be in.
    root: Option<PathBuf>,
}

impl Default for InputFiles {
    fn default() -> Self {
        Self {
            file_bytes: 512 << 20,
            left_bytes: 1 << 30,
            patience: Duration::from_secs(10),
            root: None,
        }
    }
}

impl InputFiles {
    /// Makes a reader of regular files below this folder only, for files that a stranger has named.
    ///
    /// # Errors
    /// The folder cannot be resolved.
    pub fn below(root: &Path) -> std::io::Result<Self> {
        Ok(Self {
            root: Some(root.canonicalize()?),
            ..Self::default()
        })
    }

    /// Reads the text of a file that the user named, of a named pipe, or of the standard input.
    ///
    /// # Errors
    /// The reason why it cannot be read, with the fix.
    pub fn named(&mut self, path: &Path) -> Result<String, String> {
        if self.root.is_some() {
            return self.found(path);
        }
        if path == Path::new(STDIN) {
            return self.read(&mut std::io::stdin().lock());
        }
        let kind = file_type(path)?;
        if kind.is_fifo() {
            let mut pipe = self.open_pipe(path)?;
            return self.read(&mut pipe);
        }
        self.regular(path, kind)
    }

    /// Reads the text of a file that was found in a folder.
    ///
    /// # Errors
    /// The reason why it cannot be read, with the fix.
    pub fn found(&mut self, path: &Path) -> Result<String, String> {
        self.check(path)?;
        self.regular(path, file_type(path)?)
    }

    /// Fails if the path leads out of the folder that all files must be in.
    ///
    /// # Errors
    /// The reason, with the fix.
    pub fn check(&self, path: &Path) -> Result<(), String> {
        let Some(root) = &self.root else {
            return Ok(());
        };
        let resolved = path.canonicalize().map_err(|e| e.to_string())?;
        if resolved.starts_with(root) {
            Ok(())
        } else {
            Err(format!(
                "is outside of {}, so it is not read; name a folder that holds it and the tests, \
                 or move it there",
                root.display()
            ))
        }
    }

    fn regular(&mut self, path: &Path, kind: FileType) -> Result<String, String> {
        if !kind.is_file() {
            return Err("is not a regular file; name one, or - for the standard input".to_owned());
        }
        let mut file = File::open(path).map_err(|e| e.to_string())?;
        self.read(&mut file)
    }

    /// Opens a pipe, such as `<(kubectl get pods -o yaml)`, once something writes into it.
    fn open_pipe(&self, path: &Path) -> Result<File, String> {
        let (opened, file) = mpsc::channel();
        let owned = path.to_owned();
        // Opening waits for a writer, and cannot be cancelled; the thread may last until the
        // process ends.
        std::thread::spawn(move || opened.send(File::open(owned)));
        match file.recv_timeout(self.patience) {
            Ok(file) => file.map_err(|e| e.to_string()),
            Err(_) => Err(format!(
                "is a pipe into which nothing writes for {} s; start the writer first, or name a \
                 file",
                self.patience.as_secs()
            )),
        }
    }

    fn read(&mut self, from: &mut dyn Read) -> Result<String, String> {
        let limit = self.file_bytes.min(self.left_bytes);
        let mut bytes = Vec::new();
        let mut limited = from.take(limit + 1);
        limited.read_to_end(&mut bytes).map_err(|e| e.to_string())?;
        let read = bytes.len() as u64;
        if read > limit {
            return Err(if limit == self.file_bytes {
                format!(
                    "is larger than {} MiB; leave out objects, or split it",
                    limit >> 20
                )
            } else {
                "is too much: the files together are larger than 1 GiB; name fewer of them"
                    .to_owned()
            });
        }
        self.left_bytes -= read;
        manifest::decode(bytes)
    }
}

fn file_type(path: &Path) -> Result<FileType, String> {
    let metadata = std::fs::metadata(path).map_err(|e| e.to_string())?;
    Ok(metadata.file_type())
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::fs::symlink, process::Command};

    use super::*;

    fn small() -> InputFiles {
        InputFiles {
            file_bytes: 2 << 20,
            left_bytes: 3 << 20,
            patience: Duration::from_millis(50),
            root: None,
        }
    }

    #[test]
    fn devices_and_large_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("zero.yaml");
        symlink("/dev/zero", &device).unwrap();
        let mut files = small();
        for read in [files.named(&device), files.found(&device)] {
            assert!(read.unwrap_err().starts_with("is not a regular file; "));
        }
        assert!(
            files
                .read(&mut std::io::repeat(0))
                .unwrap_err()
                .contains("2 MiB")
        );
        let file = dir.path().join("a.yaml");
        std::fs::write(&file, vec![b'a'; 2 << 20]).unwrap();
        assert_eq!(files.named(&file).unwrap().len(), 2 << 20);
        let together = files.named(&file).unwrap_err();
        assert!(together.contains("together"), "{together}");
    }

    #[test]
    fn pipes_are_read_once_they_have_a_writer() {
        let dir = tempfile::tempdir().unwrap();
        // The one that is given up stays open for reading.
        let [unused, pipe] = ["unused", "pipe"].map(|name| {
            let path = dir.path().join(name);
            let made = Command::new("mkfifo").arg(&path).status().unwrap();
            assert!(made.success());
            path
        });
        let mut files = small();
        let silent = files.named(&unused).unwrap_err();
        assert!(silent.contains("nothing writes"), "{silent}");
        let found = files.found(&pipe).unwrap_err();
        assert!(found.starts_with("is not a regular file"), "{found}");

        files.patience = Duration::from_secs(60);
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || {
                let mut file = File::options().write(true).open(pipe).unwrap();
                file.write_all(b"a: 1").unwrap();
            }
        });
        assert_eq!(files.named(&pipe).as_deref(), Ok("a: 1"));
        writer.join().unwrap();
    }

    #[test]
    fn files_outside_of_the_folder_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("tests"), dir.path().join("secret"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(&outside, "a: 1").unwrap();
        std::fs::write(inside.join("a.yaml"), "b: 1").unwrap();
        symlink(&outside, inside.join("link.yaml")).unwrap();
        let mut files = InputFiles::below(&inside).unwrap();
        assert_eq!(files.named(&inside.join("a.yaml")).as_deref(), Ok("b: 1"));
        for path in [outside, inside.join("link.yaml"), inside.join("../secret")] {
            let error = files.named(&path).unwrap_err();
            assert!(error.starts_with("is outside of "), "{error}");
        }
    }
}
