//! The HTTP API. What changes anything takes the secret; what only shows does not, and shows none.
//! `openapi.json` describes it; a test holds the two against each other.

mod blame;
mod council;
mod live;
mod metrics;
mod node;
mod page;
mod who;

pub(crate) use live::Viewers;
pub(crate) use metrics::JobSeries;
pub use who::Users;

use crate::core::{Core, Refusal};
use crate::history::{History, Query};
use crate::service::{NotLeading, Shared};
use axum::extract::{DefaultBodyLimit, Extension, Path, Query as Params, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use forebay_control::council::{COUNCIL_PATH, LEARNED_PATH, MODEL_PATH};
use forebay_control::job::{JobRequest, PinRequest, Problem};
use forebay_control::limit::{LIMITS_PATH, Limit};
use forebay_control::node::Term;
use forebay_control::status::Status;
use forebay_control::view::HealthView;
use forebay_pattern::MODEL_FILE;
use forebay_types::{NodeId, Secret};
use serde::Deserialize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use who::{Caller, Need};

/// The description of the API, as it is served.
pub const OPENAPI: &str = include_str!("../openapi.json");

/// Paths and methods of the API, as `openapi.json` must have them.
pub const ROUTES: [(&str, &[&str]); 23] = [
    ("/v1/admin", &["get"]),
    ("/v1/jobs", &["get", "post"]),
    ("/v1/jobs/{id}", &["get", "delete"]),
    ("/v1/jobs/{id}/blame", &["get"]),
    ("/v1/jobs/{id}/lease", &["put"]),
    ("/v1/jobs/{id}/nodes", &["put"]),
    ("/v1/nodes", &["get"]),
    ("/v1/nodes/{id}", &["get"]),
    ("/v1/nodes/{id}/drain", &["post"]),
    ("/v1/nodes/connect", &["get"]),
    ("/v1/limits", &["get", "post"]),
    ("/v1/limits/{id}", &["delete"]),
    ("/v1/mapping", &["get"]),
    ("/v1/decisions", &["get"]),
    ("/v1/history", &["get"]),
    ("/v1/history/jobs", &["get"]),
    ("/v1/live", &["get"]),
    ("/v1/council", &["get"]),
    ("/v1/learned", &["get", "put", "delete"]),
    ("/v1/model", &["get", "post"]),
    ("/v1/health", &["get"]),
    ("/v1/openapi.json", &["get"]),
    ("/metrics", &["get"]),
];

/// The largest body of a request.
const BODY: usize = 64 << 10;

/// The longest that a job waits for another mapping.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// How long somebody who only looks waits for his turn.
const LOOK: Duration = Duration::from_secs(2);

/// The longest a request may take, but for the nodes' WebSockets.
const PATIENCE: Duration = Duration::from_secs(30);

type App = State<Arc<Shared>>;

/// An answer that says no.
pub(crate) struct Rejection {
    status: Status,
    problem: Problem,
}

impl Rejection {
    fn new(status: Status, error: impl Into<String>) -> Rejection {
        Rejection { status, problem: Problem { error: error.into(), leader: None } }
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self.problem)).into_response()
    }
}

impl From<NotLeading> for Rejection {
    fn from(e: NotLeading) -> Rejection {
        let error = e.to_string();
        match e {
            NotLeading::Elsewhere { leader, .. } => {
                Rejection { status: Status::NotLeading, problem: Problem { error, leader } }
            }
            NotLeading::Busy => Rejection::new(Status::Busy, error),
        }
    }
}

impl From<Refusal> for Rejection {
    fn from(e: Refusal) -> Rejection {
        let status = match e {
            Refusal::Invalid(_) => Status::Invalid,
            Refusal::Unknown(_) => Status::NotFound,
            Refusal::Conflict(_) => Status::Conflict,
            Refusal::Full(_) => Status::Busy,
            Refusal::Forbidden(_) => Status::Forbidden,
        };
        Rejection::new(status, e.to_string())
    }
}

/// All routes.
pub fn router(shared: Arc<Shared>) -> Router {
    let needs =
        |need: Need| axum::middleware::from_fn_with_state((Arc::clone(&shared), need), who::authorize);
    let own = Router::new()
        .route("/v1/jobs", post(register))
        .route("/v1/jobs/{id}", axum::routing::delete(end))
        .route("/v1/jobs/{id}/lease", put(renew))
        .route("/v1/jobs/{id}/blame", get(blame::blame))
        .route_layer(needs(Need::Somebody));
    let changing = Router::new()
        .route("/v1/admin", get(async || StatusCode::NO_CONTENT))
        .route("/v1/jobs/{id}/nodes", put(pin))
        .route("/v1/nodes/{id}/drain", post(drain))
        .route(LIMITS_PATH, post(limit))
        .route("/v1/limits/{id}", axum::routing::delete(remove_limit))
        .route_layer(needs(Need::Admin));
    let files = Router::new()
        .route(LEARNED_PATH, put(council::import).delete(council::reset))
        .route(MODEL_PATH, post(council::set_model))
        .layer(DefaultBodyLimit::max(MODEL_FILE.max_bytes))
        .route_layer(needs(Need::Admin));
    let one_by_one = || axum::middleware::from_fn_with_state(Arc::clone(&shared), one_by_one);
    let theirs = Router::new()
        .route("/v1/jobs", get(jobs))
        .route("/v1/jobs/{id}", get(job))
        .route_layer(needs(Need::Look));
    let showing = Router::new()
        .route("/v1/nodes", get(nodes))
        .route("/v1/nodes/{id}", get(one_node))
        .route(LIMITS_PATH, get(limits))
        .route("/v1/mapping", get(mapping))
        .route("/v1/decisions", get(decisions))
        .route("/v1/history", get(history))
        .route("/v1/history/jobs", get(past_jobs))
        .route(COUNCIL_PATH, get(council::council))
        .route(LEARNED_PATH, get(council::learned))
        .route(MODEL_PATH, get(council::model))
        .route("/metrics", get(metrics::metrics))
        .route_layer(needs(Need::LookAtAll));
    let showing = Router::new()
        .route("/v1/health", get(health))
        .route("/v1/openapi.json", get(openapi))
        .merge(theirs)
        .merge(showing)
        .route_layer(one_by_one());
    let patience = tower_http::timeout::TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, PATIENCE);
    let socket =
        Router::new().route("/v1/nodes/connect", get(node::connect)).route_layer(needs(Need::Secret));
    let looking = Router::new().route("/v1/live", get(live::live)).route_layer(needs(Need::LookAtAll));
    changing
        .merge(own)
        .merge(showing)
        .layer(DefaultBodyLimit::max(BODY))
        .merge(files)
        .layer(patience)
        .merge(socket)
        .merge(looking)
        .merge(page::routes())
        .fallback(async || Rejection::new(Status::NotFound, "there is no such path; see /v1/openapi.json"))
        .method_not_allowed_fallback(async || {
            Rejection::new(Status::Method, "not this method; see /v1/openapi.json")
        })
        .with_state(shared)
}

/// Those who only look, and need no secret for it, wait for each other: they can delay nobody else.
async fn one_by_one(State(shared): App, request: Request, next: Next) -> Response {
    match tokio::time::timeout(LOOK, shared.looking.acquire()).await {
        Ok(Ok(_turn)) => next.run(request).await,
        _ => Rejection::new(Status::Busy, "too many look at the arbiter at once: try again").into_response(),
    }
}

/// Reads a body, which must be an object: serde alone would take a list for one, too.
fn parse<T: serde::de::DeserializeOwned>(body: &[u8], what: &str) -> Result<T, Rejection> {
    let fields: Result<serde_json::Map<String, serde_json::Value>, _> = serde_json::from_slice(body);
    let value = fields.and_then(|fields| serde_json::from_value(fields.into()));
    value.map_err(|e| Rejection::new(Status::Invalid, format!("not {what}: {e}")))
}

async fn register(
    State(shared): App,
    Extension(caller): Extension<Caller>,
    body: axum::body::Bytes,
) -> Result<Response, Rejection> {
    let mut request: JobRequest = parse(&body, "a job")?;
    let mut owner = None;
    if let Some(user) = caller.user() {
        // What a user says of himself does not count, nor that he is more important than others.
        request.user.clone_from(&user.name);
        request.weight = if user.admin { request.weight } else { 1 };
        let secret = user.secret.as_ref().map(Secret::to_hex);
        let none = || Rejection::new(Status::Invalid, "the credential carries no secret for the job");
        request.secret = Some(secret.ok_or_else(none)?);
        owner = Some(user.identity.clone());
    }
    let confidential = owner.is_some();
    let secret =
        Secret::random().map_err(|e| Rejection::new(Status::Failed, format!("/dev/urandom: {e}")))?.to_hex();
    let mut grant = shared.ask(move |core, now| core.register_for(now, request, &secret, owner)).await??;
    // Who chose it knows it.
    grant.secret = grant.secret.filter(|_| !confidential);
    shared.settle(grant.nodes.clone()).await;
    Ok(Json(grant).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeaseParams {
    known: Option<u64>,
    wait_ms: Option<u64>,
    #[serde(default)]
    run: u32,
}

/// The lease is renewed at once; the answer waits, where that is wanted, until the job's mapping is no
/// longer the known one.
async fn renew(
    State(shared): App,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    params: Result<Params<LeaseParams>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Rejection> {
    let Params(p) = params.map_err(|e| Rejection::new(Status::Invalid, e.body_text()))?;
    let wait = Duration::from_millis(p.wait_ms.unwrap_or(0)).min(LONGEST_WAIT);
    let until = tokio::time::Instant::now() + wait;
    let (asked, only) = (id.clone(), caller.only());
    let renew =
        move |core: &mut Core, now| core.owned(&asked, only).and_then(|()| core.renew(now, &asked, p.run));
    let mut grant = shared.ask(renew).await??;
    if p.known == Some(grant.epoch.0) && shared.moved(&id, grant.epoch, until).await {
        grant = shared.ask(move |core, now| core.renew(now, &id, p.run)).await??;
    }
    shared.settle(grant.nodes.clone()).await;
    Ok(Json(grant).into_response())
}

async fn pin(
    State(shared): App,
    Path(id): Path<String>,
    body: axum::body::Bytes,
) -> Result<Response, Rejection> {
    let wanted: PinRequest = parse(&body, "a list of I/O nodes")?;
    Ok(Json(shared.ask(move |core, now| core.pin(now, &id, wanted.nodes)).await??).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EndParams {
    failed: Option<bool>,
    /// Only this run of it; the job with the last.
    run: Option<u32>,
}

async fn end(
    State(shared): App,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    params: Result<Params<EndParams>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Rejection> {
    let Params(p) = params.map_err(|e| Rejection::new(Status::Invalid, e.body_text()))?;
    let (only, complete) = (caller.only(), !p.failed.unwrap_or(false));
    let end = move |core: &mut Core, now| {
        core.owned(&id, only).and_then(|()| match p.run {
            Some(run) => core.end_run(now, &id, run, complete),
            None => core.end(now, &id, complete),
        })
    };
    shared.ask(end).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn drain(State(shared): App, Path(id): Path<String>) -> Result<Response, Rejection> {
    let id = node_id(&id)?;
    shared.ask(move |core, now| core.drain(now, id)).await??;
    Ok(StatusCode::ACCEPTED.into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitParams {
    /// Only if this holds now: a limit, or `null` for none.
    was: Option<String>,
}

type AskedLimit = Result<Params<LimitParams>, axum::extract::rejection::QueryRejection>;

/// What is to hold now, if that is asked: a limit, or none.
fn expected(params: AskedLimit) -> Result<Option<Option<Limit>>, Rejection> {
    let Params(p) = params.map_err(|e| Rejection::new(Status::Invalid, e.body_text()))?;
    let was = p.was.map(|was| serde_json::from_str(&was)).transpose();
    was.map_err(|e| Rejection::new(Status::Invalid, format!("was: neither a limit nor null: {e}")))
}

async fn limit(
    State(shared): App,
    params: AskedLimit,
    body: axum::body::Bytes,
) -> Result<Response, Rejection> {
    let (limit, was): (Limit, _) = (parse(&body, "a limit")?, expected(params)?);
    let set = move |core: &mut Core, now| {
        was.map_or(Ok(()), |was| core.limit_is(&limit.subject.to_string(), was.as_ref()))?;
        core.set_limit(now, limit)
    };
    Ok(Json(shared.ask(set).await??).into_response())
}

async fn remove_limit(
    State(shared): App,
    Path(id): Path<String>,
    params: AskedLimit,
) -> Result<Response, Rejection> {
    let was = expected(params)?;
    let remove = move |core: &mut Core, now| {
        was.map_or(Ok(()), |was| core.limit_is(&id, was.as_ref()))?;
        core.remove_limit(now, &id)
    };
    shared.ask(remove).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn limits(State(shared): App) -> Result<Response, Rejection> {
    Ok(Json(shared.ask(|core, _| core.limits()).await?).into_response())
}

async fn jobs(State(shared): App, Extension(caller): Extension<Caller>) -> Result<Response, Rejection> {
    let only = caller.only();
    let all = move |core: &mut Core, now| {
        let mut jobs = core.jobs(now);
        jobs.retain(|j| core.owned(&j.id, only).is_ok());
        jobs
    };
    Ok(Json(shared.ask(all).await?).into_response())
}

async fn job(
    State(shared): App,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, Rejection> {
    let (asked, only) = (id.clone(), caller.only());
    let found =
        shared.ask(move |core, now| core.job(now, &asked).filter(|_| core.owned(&asked, only).is_ok()));
    let found = found.await?;
    let none = || Rejection::new(Status::NotFound, format!("there is no job {id:?}"));
    Ok(Json(found.ok_or_else(none)?).into_response())
}

async fn nodes(State(shared): App) -> Result<Response, Rejection> {
    Ok(Json(shared.ask(|core, now| core.nodes(now)).await?).into_response())
}

async fn one_node(State(shared): App, Path(id): Path<String>) -> Result<Response, Rejection> {
    let id = node_id(&id)?;
    let nodes = shared.ask(|core, now| core.nodes(now)).await?;
    let found = nodes.into_iter().find(|n| n.id == id);
    let none = || Rejection::new(Status::NotFound, format!("there is no I/O node {id}"));
    Ok(Json(found.ok_or_else(none)?).into_response())
}

async fn mapping(State(shared): App) -> Result<Response, Rejection> {
    Ok(Json(shared.ask(|core, _| core.mapping()).await?).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionParams {
    job: Option<String>,
    limit: Option<u32>,
}

async fn decisions(
    State(shared): App,
    params: Result<Params<DecisionParams>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Rejection> {
    let Params(p) = params.map_err(|e| Rejection::new(Status::Invalid, e.body_text()))?;
    let limit = p.limit.unwrap_or(50).min(1000);
    let found = read(&shared, move |h| h.decisions(p.job.as_deref(), limit)).await?;
    Ok(Json(found).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryParams {
    job: Option<String>,
    node: Option<u32>,
    from: Option<u64>,
    to: Option<u64>,
    step: Option<u32>,
    limit: Option<u32>,
}

async fn history(
    State(shared): App,
    params: Result<Params<HistoryParams>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Rejection> {
    let Params(p) = params.map_err(|e| Rejection::new(Status::Invalid, e.body_text()))?;
    let step = p.step.unwrap_or(1);
    if ![1, 60, 3600].contains(&step) {
        return Err(Rejection::new(Status::Invalid, format!("step: {step} is not 1, 60 or 3600 seconds")));
    }
    let query = Query {
        job: p.job,
        node: p.node.map(NodeId),
        from: p.from.unwrap_or(0),
        to: p.to,
        step,
        limit: p.limit.unwrap_or(1000).min(10_000),
    };
    Ok(Json(read(&shared, move |h| h.rows(&query)).await?).into_response())
}

/// The jobs of the past that are still known, the latest first.
async fn past_jobs(State(shared): App) -> Result<Response, Rejection> {
    Ok(Json(read(&shared, |h| h.jobs(500)).await?).into_response())
}

/// Answers from the history file, off the threads that serve everyone.
async fn read<T: Send + 'static>(
    shared: &Arc<Shared>,
    question: impl FnOnce(&History) -> rusqlite::Result<T> + Send + 'static,
) -> Result<T, Rejection> {
    let dir = shared.config.state.clone();
    let answer = tokio::task::spawn_blocking(move || History::read(&dir).and_then(|h| question(&h))).await;
    let failed = |e: &dyn std::fmt::Display| {
        Rejection::new(Status::Failed, format!("the history cannot be read: {e}"))
    };
    answer.map_err(|e| failed(&e))?.map_err(|e| failed(&e))
}

async fn health(State(shared): App) -> Response {
    let dropped = shared.history_dropped();
    let leading = shared.ask(|core, now| core.health(now)).await;
    match leading {
        Ok(view) => Json(HealthView { history_dropped: dropped, refused: shared.refusals.list(), ..view })
            .into_response(),
        Err(NotLeading::Elsewhere { leader, .. }) => Json(HealthView {
            state: "standby".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            term: Term::default(),
            policy: shared.config.core.policy.name().to_owned(),
            jobs: 0,
            admitted: 0,
            nodes: 0,
            up_ms: 0,
            history_dropped: dropped,
            leader,
            refused: Vec::new(),
        })
        .into_response(),
        Err(e) => Rejection::from(e).into_response(),
    }
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

fn node_id(text: &str) -> Result<NodeId, Rejection> {
    let number = text.parse().map(NodeId);
    number.map_err(|_| Rejection::new(Status::Invalid, format!("{text:?} is not the number of an I/O node")))
}

impl Shared {
    /// Requests that reached the core so far.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}
