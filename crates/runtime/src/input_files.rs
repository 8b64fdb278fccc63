//! Reads the files that a user names, with bounds: a device without an end and a pipe without a
//! writer are errors.

use std::{
    fs::{File, FileType},
    io::Read,
    path::{Path, PathBuf},
    sync::mpsc,
    time::Duration,
};

use tautline_api::manifest;

/// The path of the standard input.
pub const STDIN: &str = "-";

/// The reason why a file cannot be read, with the fix.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the variants are")]
pub enum InputError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("is a URL, which is not read; pipe it: curl -fsSL {0} | ... -f -")]
    Url(String),
    #[error("is a compressed archive; unpack it, and name the text in it")]
    Archive,
    #[error("is a binary file; name a text in YAML or JSON")]
    Binary,
    #[error("is UTF-16 without a byte order mark; save the file as UTF-8")]
    Utf16WithoutMark,
    #[error("is not a regular file; name one, or - for the standard input")]
    NotRegular,
    #[error(
        "is a pipe into which nothing writes for {0} s; start the writer first, or name a file"
    )]
    SilentPipe(u64),
    #[error("is larger than {0} MiB; leave out objects, or split it")]
    TooLarge(u64),
    #[error("is too much: the files together are larger than 1 GiB; name fewer of them")]
    TooMuch,
    #[error(
        "is outside of {}, so it is not read; name a folder that holds it and the tests, or move \
         it there", .0.display()
    )]
    Outside(PathBuf),
}

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
    /// It cannot be read.
    pub fn named(&mut self, path: &Path) -> Result<String, InputError> {
        if self.root.is_some() {
            return self.found(path);
        }
        if path == Path::new(STDIN) {
            return self.read(&mut std::io::stdin().lock());
        }
        let url = path.to_str().filter(|path| is_url(path));
        if let Some(url) = url.filter(|_| !path.exists()) {
            return Err(InputError::Url(url.to_owned()));
        }
        if is_pipe(std::fs::metadata(path)?.file_type()) {
            let mut pipe = self.open_pipe(path)?;
            return self.read(&mut pipe);
        }
        self.found(path)
    }

    /// Reads the text of a file that was found in a folder.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn found(&mut self, path: &Path) -> Result<String, InputError> {
        self.check(path)?;
        if !std::fs::metadata(path)?.is_file() {
            return Err(InputError::NotRegular);
        }
        self.read(&mut File::open(path)?)
    }

    /// Fails if the path leads out of the folder that all files must be in.
    ///
    /// # Errors
    /// It does, or it cannot be resolved.
    pub fn check(&self, path: &Path) -> Result<(), InputError> {
        match &self.root {
            Some(root) if !path.canonicalize()?.starts_with(root) => {
                Err(InputError::Outside(root.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Opens a pipe, such as `<(kubectl get pods -o yaml)`, once something writes into it.
    fn open_pipe(&self, path: &Path) -> Result<File, InputError> {
        let (opened, file) = mpsc::channel();
        let owned = path.to_owned();
        // Opening waits for a writer, and cannot be cancelled; the thread may last until the
        // process ends.
        std::thread::spawn(move || opened.send(File::open(owned)));
        match file.recv_timeout(self.patience) {
            Ok(file) => Ok(file?),
            Err(_) => Err(InputError::SilentPipe(self.patience.as_secs())),
        }
    }

    fn read(&mut self, from: &mut dyn Read) -> Result<String, InputError> {
        let limit = self.file_bytes.min(self.left_bytes);
        let mut bytes = Vec::new();
        let read = from.take(limit + 1).read_to_end(&mut bytes)? as u64;
        if read > limit && limit == self.file_bytes {
            return Err(InputError::TooLarge(limit >> 20));
        }
        if read > limit {
            return Err(InputError::TooMuch);
        }
        self.left_bytes -= read;
        check_is_text(&bytes)?;
        Ok(manifest::decode(bytes))
    }
}

#[cfg(unix)]
fn is_pipe(kind: FileType) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&kind)
}

/// Returns false: elsewhere no pipe is a file.
#[cfg(not(unix))]
fn is_pipe(_: FileType) -> bool {
    false
}

fn is_url(path: &str) -> bool {
    ["http://", "https://"].iter().any(|s| path.starts_with(s))
}

/// The bytes at the start of a file that show whether it is a text.
const START_BYTES: usize = 1024;

/// Fails for what is clearly no text, in words that a person understands.
fn check_is_text(bytes: &[u8]) -> Result<(), InputError> {
    let start = bytes.get(..START_BYTES).unwrap_or(bytes);
    match start {
        // gzip, zip, zstd, xz
        [0x1f, 0x8b, ..]
        | [b'P', b'K', 3, 4, ..]
        | [0x28, 0xb5, 0x2f, 0xfd, ..]
        | [0xfd, b'7', b'z', b'X', b'Z', ..] => Err(InputError::Archive),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Ok(()),
        [0, first, 0, second, ..] | [first, 0, second, 0, ..]
            if first.is_ascii() && second.is_ascii() && *first != 0 =>
        {
            Err(InputError::Utf16WithoutMark)
        }
        _ if start.contains(&0) => Err(InputError::Binary),
        _ => Ok(()),
    }
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
            let error = read.unwrap_err().to_string();
            assert!(error.starts_with("is not a regular file; "), "{error}");
        }
        assert!(
            files
                .read(&mut std::io::repeat(0))
                .unwrap_err()
                .to_string()
                .contains("2 MiB")
        );
        let file = dir.path().join("a.yaml");
        std::fs::write(&file, vec![b'a'; 2 << 20]).unwrap();
        assert_eq!(files.named(&file).unwrap().len(), 2 << 20);
        let together = files.named(&file).unwrap_err().to_string();
        assert!(together.contains("together"), "{together}");
    }

    #[test]
    fn urls_and_files_that_are_no_text_have_their_own_words() {
        let url = small().named(Path::new("https://x.example/a.yaml"));
        assert_eq!(
            url.unwrap_err().to_string(),
            "is a URL, which is not read; pipe it: curl -fsSL https://x.example/a.yaml | ... -f -"
        );
        for (bytes, expected) in [
            (&b"\x1f\x8b\x08\0"[..], "is a compressed archive"),
            (b"PK\x03\x04", "is a compressed archive"),
            (b"\x7fELF\x02\x01\x01\0", "is a binary file"),
            (b"a.yaml\0\0\0\0", "is a binary file"),
            (b"k\0i\0n\0", "is UTF-16 without"),
            (b"\0k\0i\0n", "is UTF-16 without"),
        ] {
            let error = small().read(&mut { bytes }).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{bytes:?}: {error}");
        }
        for text in [&b""[..], b"a", b"kind: Pod", b"\xe9: 1", b"\xff\xfea\0"] {
            small().read(&mut { text }).unwrap();
        }
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
        let silent = files.named(&unused).unwrap_err().to_string();
        assert!(silent.contains("nothing writes"), "{silent}");
        let found = files.found(&pipe).unwrap_err().to_string();
        assert!(found.starts_with("is not a regular file"), "{found}");

        files.patience = Duration::from_secs(60);
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || {
                let mut file = File::options().write(true).open(pipe).unwrap();
                file.write_all(b"a: 1").unwrap();
            }
        });
        assert_eq!(files.named(&pipe).unwrap(), "a: 1");
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
        assert_eq!(files.named(&inside.join("a.yaml")).unwrap(), "b: 1");
        for path in [outside, inside.join("link.yaml"), inside.join("../secret")] {
            let error = files.named(&path).unwrap_err().to_string();
            assert!(error.starts_with("is outside of "), "{error}");
        }
    }
}
