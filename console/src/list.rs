//! A window of a long list.

use maud::{Markup, html};
use serde::Serialize;

use crate::request::{PageError, PageRequest};

/// Rows on a page.
pub(crate) const ROWS: usize = 100;

/// One page of a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Window<T> {
    pub rows: Vec<T>,
    /// Of the whole list.
    pub total: usize,
    /// From 1 on.
    pub page: usize,
    pub pages: usize,
}

impl<T> Window<T> {
    /// The page that the query's `page` names, or the last if it is beyond; `row` is made of the
    /// shown elements only.
    pub(crate) fn new<E>(
        request: &PageRequest,
        all: &[E],
        row: impl FnMut(&E) -> T,
    ) -> Result<Self, PageError> {
        let pages = all.len().div_ceil(ROWS).max(1);
        let page = request.number("page")?.unwrap_or(1).clamp(1, pages);
        let shown = all.iter().skip((page - 1) * ROWS).take(ROWS);
        Ok(Self {
            rows: shown.map(row).collect(),
            total: all.len(),
            page,
            pages,
        })
    }

    /// Links to the pages before and after; nothing for a list of one page.
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
