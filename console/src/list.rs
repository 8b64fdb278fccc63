//! Splits long lists into pages.

use maud::{Markup, html};
use serde::Serialize;

use crate::request::{PageError, PageRequest};

/// The number of rows on a page.
pub(crate) const ROWS_PER_PAGE: usize = 100;

/// One page of a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
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
    ) -> Result<Self, PageError> {
        let pages = all.len().div_ceil(ROWS_PER_PAGE).max(1);
        let page = request.number("page")?.unwrap_or(1).clamp(1, pages);
        let shown = all
            .iter()
            .skip((page - 1) * ROWS_PER_PAGE)
            .take(ROWS_PER_PAGE);
        Ok(Self {
            rows: shown.map(row).collect(),
            total: all.len(),
            page,
            pages,
        })
    }

    /// Renders links to the pages before and after this one, or nothing for a list of one page.
    pub(crate) fn pager(&self, request: &PageRequest) -> Markup {
        let link = |page: usize| request.link("page", Some(&page.to_string()));
        html! {
            @if self.pages > 1 {
                nav .pager aria-label="Pages" {
                    @if self.page > 1 {
                        a rel="prev" href=(link(self.page - 1)) { "← Before" }
                    }
                    span { "Page " (self.page) " of " (self.pages) ", " (self.total) " in all" }
                    @if self.page < self.pages {
                        a rel="next" href=(link(self.page + 1)) { "Next →" }
                    }
                }
            }
        }
    }
}
