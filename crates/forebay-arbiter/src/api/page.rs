//! The dashboard: a page and what it loads, carried inside the program, so that it works without a
//! network. What it shows comes from [`super::live`]; what it changes goes the way of every tool.

use super::{App, Rejection};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use forebay_control::status::Status;
use std::sync::Arc;

/// Name, type, content.
const ASSETS: [(&str, &str, &str); 8] = [
    ("app.css", "text/css; charset=utf-8", include_str!("../../web/app.css")),
    ("app.js", "text/javascript; charset=utf-8", include_str!("../../web/app.js")),
    ("state.js", "text/javascript; charset=utf-8", include_str!("../../web/state.js")),
    ("charts.js", "text/javascript; charset=utf-8", include_str!("../../web/charts.js")),
    ("views.js", "text/javascript; charset=utf-8", include_str!("../../web/views.js")),
    ("uplot.js", "text/javascript; charset=utf-8", include_str!("../../web/uplot.js")),
    ("uplot.css", "text/css; charset=utf-8", include_str!("../../web/uplot.css")),
    ("uplot.LICENSE", "text/plain; charset=utf-8", include_str!("../../web/uplot.LICENSE")),
];

/// Nothing from elsewhere, nothing inline: what a job calls itself cannot become part of the page.
const POLICY: &str = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; \
                      form-action 'none'";

pub(super) fn routes() -> Router<Arc<crate::service::Shared>> {
    Router::new().route("/", get(page)).route("/assets/{name}", get(asset))
}

async fn page(State(shared): App) -> Response {
    // Where users are told apart, what is live is for admins: the page does not ask for it without the secret.
    let look = if shared.config.users.is_some() { "secret" } else { "all" };
    let page = include_str!("../../web/index.html");
    let page = page.replace("{version}", env!("CARGO_PKG_VERSION")).replace("{look}", look);
    serve("text/html; charset=utf-8", page.into_bytes())
}

async fn asset(Path(name): Path<String>) -> Result<Response, Rejection> {
    let found = ASSETS.iter().find(|(n, ..)| *n == name);
    let (_, kind, content) =
        found.ok_or_else(|| Rejection::new(Status::NotFound, "the dashboard has no such file"))?;
    Ok(serve(kind, content.as_bytes().to_vec()))
}

fn serve(kind: &'static str, content: Vec<u8>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // A new version of the program brings a new page.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    let headers = headers.map(|(name, value): (HeaderName, _)| (name, HeaderValue::from_static(value)));
    (headers, content).into_response()
}
