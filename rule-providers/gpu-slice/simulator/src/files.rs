use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    str::FromStr,
};

use csv::StringRecord;
use flate2::read::GzDecoder;

use crate::error::{Error, FileLocation};

/// Reads the path and the text of a file, or of `NAME.gz` if there is no `NAME`.
pub fn read_text(path: &Path) -> Result<(PathBuf, String), Error> {
    let mut packed = path.as_os_str().to_owned();
    packed.push(".gz");
    let packed = PathBuf::from(packed);
    let mut text = String::new();
    let (file, read) = match File::open(path) {
        Ok(mut file) => (path.to_owned(), file.read_to_string(&mut text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound && packed.exists() => {
            let read =
                File::open(&packed).and_then(|f| GzDecoder::new(f).read_to_string(&mut text));
            (packed, read)
        }
        Err(source) => {
            return Err(Error::Read {
                file: path.to_owned(),
                source,
            });
        }
    };
    match read {
        Ok(_) => Ok((file, text)),
        Err(source) => Err(Error::Read { file, source }),
    }
}

pub fn exists(path: &Path) -> bool {
    let mut packed = path.as_os_str().to_owned();
    packed.push(".gz");
    path.exists() || Path::new(&packed).exists()
}

pub fn read_numbers<T: FromStr>(path: &Path) -> Result<Vec<T>, Error> {
    let (file, text) = read_text(path)?;
    let number = |(i, line): (usize, &str)| {
        line.trim().parse().map_err(|_| Error::Content {
            location: FileLocation {
                file: file.clone(),
                line: i as u64 + 1,
                column: None,
            },
            wrong: format!("{line:?} is no index; write one whole number a line"),
        })
    };
    text.lines().enumerate().map(number).collect()
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
        let at = |error: csv::Error| Error::Content {
            location: FileLocation {
                file: file.clone(),
                line: error.position().map_or(0, csv::Position::line),
                column: None,
            },
            wrong: format!("{error}; write comma-separated values under a header line"),
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
            let mut error = self.wrong(
                column,
                format!("there is no such column among {}", columns.join(", ")),
            );
            if let Error::Content { location: at, .. } = &mut error {
                at.line = 1;
            }
            return Err(error);
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
        Error::Content {
            location: FileLocation {
                file: self.table.file.clone(),
                line: self.record.position().map_or(0, csv::Position::line),
                column: Some(column.to_owned()),
            },
            wrong,
        }
    }
}
