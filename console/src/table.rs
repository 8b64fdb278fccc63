//! Renders tables, and splits long lists into pages.

use maud::{Markup, html};
use serde::Serialize;

use crate::request::{PageRequest, PageResult};

/// A column of a table: its title, and the content of its cells.
pub(crate) struct Column<'a, R> {
    title: &'a str,
    /// The CSS class of the cells; the cells of the class `name` head their rows.
    class: &'a str,
    cell: &'a dyn Fn(&R) -> Markup,
    is_shown: bool,
}

/// Returns the column of the names of the rows.
pub(crate) fn name<'a, R>(title: &'a str, cell: &'a dyn Fn(&R) -> Markup) -> Column<'a, R> {
    column("name", title, cell)
}

/// Returns a column of text.
pub(crate) fn text<'a, R>(title: &'a str, cell: &'a dyn Fn(&R) -> Markup) -> Column<'a, R> {
    column("", title, cell)
}

/// Returns a column of numbers, which are aligned at the right.
pub(crate) fn number<'a, R>(title: &'a str, cell: &'a dyn Fn(&R) -> Markup) -> Column<'a, R> {
    column("number", title, cell)
}

/// Returns a column whose cells have a CSS class.
pub(crate) fn column<'a, R>(
    class: &'a str,
    title: &'a str,
    cell: &'a dyn Fn(&R) -> Markup,
) -> Column<'a, R> {
    Column {
        title,
        class,
        cell,
        is_shown: true,
    }
}

/// Returns the column, which is left out of the table unless `is_shown`.
pub(crate) fn only_if<R>(is_shown: bool, column: Column<'_, R>) -> Column<'_, R> {
    Column { is_shown, ..column }
}

/// Renders a table. The label, for screen readers, and the CSS class may be empty.
pub(crate) fn table<R>(style: (&str, &str), rows: &[R], columns: &[Column<'_, R>]) -> Markup {
    let head = shown(columns).map(|column| (column.class, column.title));
    frame(style, head, &html! { tbody { (lines(rows, columns)) } })
}

/// Renders a table like [`table`], whose adjacent rows form a group with a title if `is_same` holds.
pub(crate) fn grouped<R>(
    style: (&str, &str),
    rows: &[R],
    columns: &[Column<'_, R>],
    is_same: impl Fn(&R, &R) -> bool,
    title: impl Fn(&[R]) -> Markup,
) -> Markup {
    let head = shown(columns).map(|column| (column.class, column.title));
    let body = html! {
        @for rows in rows.chunk_by(is_same) {
            tbody {
                tr .group { th scope="rowgroup" colspan=(shown(columns).count()) { (title(rows)) } }
                (lines(rows, columns))
            }
        }
    };
    frame(style, head, &body)
}

fn shown<'a, 'c, R>(columns: &'a [Column<'c, R>]) -> impl Iterator<Item = &'a Column<'c, R>> {
    columns.iter().filter(|column| column.is_shown)
}

/// Renders rows. In a narrow window each becomes a card with the titles of its cells.
fn lines<R>(rows: &[R], columns: &[Column<'_, R>]) -> Markup {
    html! {
        @for row in rows {
            tr {
                @for Column { class, cell, title, .. } in shown(columns) {
                    @match *class {
                        "name" => th scope="row" { (cell(row)) },
                        class => td class=[(!class.is_empty()).then_some(class)] data-th=(title) { (cell(row)) },
                    }
                }
            }
        }
    }
}

/// Renders a table like [`table`], with its bodies. `head` has the CSS class and the
/// title of each column.
pub(crate) fn frame<'a>(
    (label, class): (&str, &str),
    head: impl IntoIterator<Item = (&'a str, &'a str)>,
    body: &Markup,
) -> Markup {
    let label = (!label.is_empty()).then_some(label);
    html! {
        // A table whose rows do not become cards scrolls in a narrow window.
        div .scroll tabindex=[label.map(|_| "0")] role=[label.map(|_| "region")] aria-label=[label] {
            table class=[(!class.is_empty()).then_some(class)] {
                thead {
                    tr {
                        @for (class, title) in head {
                            th class=[(class == "number").then_some(class)] scope="col" { (title) }
                        }
                    }
                }
                (body)
            }
        }
    }
}

/// The number of rows on a page.
const ROWS_PER_PAGE: usize = 100;

/// One page of a list.
#[derive(Debug, Serialize)]
pub(crate) struct Window<T> {
    pub rows: Vec<T>,
    /// The number of elements in the whole list.
    pub total: usize,
    /// The number of this page, from 1.
    pub page: usize,
    /// The number of pages, at least 1.
    pub pages: usize,
}

impl<T> Window<T> {
    /// Returns the page that the query's field `page` names, or the last one if there are fewer.
    /// `row` is called only for the shown elements.
    pub(crate) fn new<E>(
        request: &PageRequest,
        all: &[E],
        row: impl FnMut(&E) -> T,
    ) -> PageResult<Self> {
        Self::sized(request, all, ROWS_PER_PAGE, row)
    }

    /// Returns the page like [`Window::new`], with another number of rows.
    pub(crate) fn sized<E>(
        request: &PageRequest,
        all: &[E],
        size: usize,
        row: impl FnMut(&E) -> T,
    ) -> PageResult<Self> {
        let mut pages = all.chunks(size);
        let page = request.number("page")?.unwrap_or(1);
        let page = page.clamp(1, pages.len().max(1));

        let count = pages.len().max(1);
        let shown = pages.nth(page - 1).unwrap_or_default();
        Ok(Self {
            total: all.len(),
            page,
            pages: count,
            rows: shown.iter().map(row).collect(),
        })
    }

    /// Returns a list of one page.
    pub(crate) fn whole(rows: Vec<T>, total: usize) -> Self {
        Self {
            rows,
            total,
            page: 1,
            pages: 1,
        }
    }

    /// Renders links to the pages before and after this one, or nothing for a list of one page.
    /// `anchor` is the place on these pages, such as `#nodes`, or empty.
    pub(crate) fn pager(&self, request: &PageRequest, anchor: &str) -> Markup {
        let link = |page: usize| request.link("page", Some(&page.to_string())) + anchor;
        html! {
            @if self.pages > 1 {
                nav .pager aria-label="Pages" {
                    @if self.page > 1 { a rel="prev" href=(link(self.page - 1)) { "← Before" } }
                    span { "Page " (self.page) " of " (self.pages) ", " (self.total) " in all" }
                    @if self.page < self.pages { a rel="next" href=(link(self.page + 1)) { "Next →" } }
                }
            }
        }
    }
}
