/// A sparse symmetric matrix: rows of (column, value), sorted by column, with every value in both
/// its rows.
#[derive(Clone, Debug)]
pub(crate) struct Sparse<T> {
    start: Vec<u32>,
    entries: Vec<(u32, T)>,
}

impl<T: Copy + Default> Sparse<T> {
    /// Builds a matrix from cells (row, column, value), sorted by row, then by column; a cell's row
    /// is not above its column.
    pub fn new(rows: usize, cells: impl Iterator<Item = (u32, u32, T)> + Clone) -> Self {
        let mut start = vec![0u32; rows + 1];
        for (a, b, _) in cells.clone() {
            start[a as usize + 1] += 1;
            if a != b {
                start[b as usize + 1] += 1;
            }
        }
        for row in 0..rows {
            start[row + 1] += start[row];
        }
        let mut next = start.clone();
        let all = start.last().map_or(0, |end| *end as usize);
        let mut entries = vec![(0, T::default()); all];
        let mut put = |row: u32, column: u32, value: T| {
            let next = &mut next[row as usize];
            entries[*next as usize] = (column, value);
            *next += 1;
        };
        // A row's lower columns come before its higher ones, each in order.
        for (a, b, value) in cells {
            put(a, b, value);
            if a != b {
                put(b, a, value);
            }
        }
        Self { start, entries }
    }

    pub fn rows(&self) -> usize {
        self.start.len() - 1
    }

    pub fn row(&self, row: usize) -> &[(u32, T)] {
        &self.entries[self.start[row] as usize..self.start[row + 1] as usize]
    }

    pub fn row_mut(&mut self, row: usize) -> &mut [(u32, T)] {
        &mut self.entries[self.start[row] as usize..self.start[row + 1] as usize]
    }

    pub fn get(&self, row: usize, column: usize) -> Option<T> {
        let row = self.row(row);
        let at = row.binary_search_by_key(&column, |e| e.0 as usize).ok()?;
        Some(row[at].1)
    }
}
