//! Serves the style sheet and the scripts, which are part of the binary.

use axum::{
    extract::Path,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

struct Asset {
    name: &'static str,
    kind: &'static str,
    body: &'static [u8],
}

const ASSETS: [Asset; 3] = [
    Asset {
        name: "console.css",
        kind: "text/css; charset=utf-8",
        body: include_bytes!("../assets/console.css"),
    },
    Asset {
        name: "console.js",
        kind: "text/javascript; charset=utf-8",
        body: include_bytes!("../assets/console.js"),
    },
    Asset {
        name: "htmx.min.js",
        kind: "text/javascript; charset=utf-8",
        body: include_bytes!("../assets/htmx.min.js"),
    },
];

pub(crate) async fn serve(Path(name): Path<String>) -> Response {
    match ASSETS.iter().find(|asset| asset.name == name) {
        // Browsers must revalidate: another version of the binary may use the same port later.
        Some(Asset { kind, body, .. }) => (
            [
                (header::CONTENT_TYPE, *kind),
                (header::CACHE_CONTROL, "no-cache"),
            ],
            *body,
        )
            .into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
