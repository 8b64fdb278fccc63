//! Reads the text and CSV files of a trace, plain or compressed by gzip, and defines the
//! simulator's errors with file, line and column.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    str::FromStr,
};

use csv::StringRecord;
use flate2::read::GzDecoder;

/// The reasons why a trace cannot be used or a report cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{} cannot be read: {source}", file.display())]
    /// A file or folder of the trace cannot be read.
    Read {
        /// Path of the file or folder.
        file: PathBuf,
        /// The error of the system, or of decompression.
        source: io::Error,
    },
    #[error("{} cannot be written: {source}", file.display())]
    /// A file of the report cannot be written.
    Write {
        /// Path of the file.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    #[error("{place}: {wrong}")]
    /// A file of the trace has invalid content.
    Content {
        /// Path of the file, with the line and the column if they are known.
        place: String,
        /// Description of the error, and of what to write instead.
        wrong: String,
    },
    #[error("{0}")]
    /// Arguments or files do not fit together; the text is the whole message.
    Invalid(String),
}

fn packed(path: &Path) -> PathBuf {
    let mut packed = path.as_os_str().to_owned();
    packed.push(".gz");
    packed.into()
}

pub fn exists(path: &Path) -> bool {
    path.exists() || packed(path).exists()
}

/// Reads the path and the text of a file, or of `NAME.gz` if there is no `NAME`.
pub fn read_text(path: &Path) -> Result<(PathBuf, String), Error> {
    let packed = packed(path);
    let is_packed = !path.exists() && packed.exists();
    let file = if is_packed { packed } else { path.to_owned() };
    let mut text = String::new();
    let read = File::open(&file).and_then(|mut stream| {
        if is_packed {
            GzDecoder::new(stream).read_to_string(&mut text)
        } else {
            stream.read_to_string(&mut text)
        }
    });
    match read {
        Ok(_) => Ok((file, text)),
        Err(source) => Err(Error::Read { file, source }),
    }
}

pub fn read_numbers<T: FromStr>(path: &Path) -> Result<Vec<T>, Error> {
    let (file, text) = read_text(path)?;
    let number = |(i, line): (usize, &str)| {
        let wrong = || format!("{line:?} is no index; write one whole number a line");
        let number = line.trim().parse();
        number.map_err(|_| content(&file, i as u64 + 1, None, wrong()))
    };
    text.lines().enumerate().map(number).collect()
}

/// Returns the error for a line of a file, whose number is 0 if it is not known, and perhaps a
/// column.
fn content(file: &Path, line: u64, column: Option<&str>, wrong: String) -> Error {
    let mut place = file.display().to_string();
    if line > 0 {
        place += &format!(", line {line}");
    }
    if let Some(column) = column {
        place += &format!(", column {column}");
    }
    Error::Content { place, wrong }
}

pub struct Table {
    file: PathBuf,
    header: StringRecord,
    rows: Vec<StringRecord>,
}

pub struct Row<'a> {
    table: &'a Table,
    record: &'a StringRecord,
}

impl Table {
    pub fn read(path: &Path) -> Result<Self, Error> {
        let (file, text) = read_text(path)?;
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let at = |error: csv::Error| {
            let line = error.position().map_or(0, csv::Position::line);
            let wrong = format!("{error}; write comma-separated values under a header line");
            content(&file, line, None, wrong)
        };
        let header = reader.headers().map_err(at)?.clone();
        let rows: Result<Vec<_>, _> = reader.records().map(|r| r.map_err(at)).collect();
        Ok(Self {
            rows: rows?,
            file,
            header,
        })
    }

    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let row = |record| Row {
            table: self,
            record,
        };
        self.rows.iter().map(row)
    }

    pub fn column(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|h| h == name)
    }
}

impl<'a> Row<'a> {
    pub fn optional(&self, column: &str) -> &'a str {
        let at = self.table.column(column);
        at.and_then(|i| self.record.get(i)).unwrap_or_default()
    }

    pub fn text(&self, column: &str) -> Result<&'a str, Error> {
        if self.table.column(column).is_none() {
            let columns: Vec<&str> = self.table.header.iter().collect();
            let columns = columns.join(", ");
            let wrong = format!("there is no such column among {columns}");
            return Err(content(&self.table.file, 1, Some(column), wrong));
        }
        Ok(self.optional(column))
    }

    /// Reads an integer from `least` to `most`; `what` names it in errors.
    pub fn number(&self, column: &str, what: &str, least: i64, most: i64) -> Result<i64, Error> {
        let text = self.text(column)?;
        let number = text.trim().parse().ok();
        let number = number.filter(|n| (least..=most).contains(n));
        number.ok_or_else(|| {
            self.wrong(
                column,
                format!("{text:?} does not say {what}; write a whole number, {least} to {most}"),
            )
        })
    }

    pub fn wrong(&self, column: &str, wrong: String) -> Error {
        let line = self.record.position().map_or(0, csv::Position::line);
        content(&self.table.file, line, Some(column), wrong)
    }
}
