//! What was learned, the council's decisions, and the detector.

use super::{App, Rejection};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query as Params, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use forebay_control::status::Status;
use forebay_pattern::Model;
use forebay_tune::Learned;
use serde::Deserialize;

fn json(bytes: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], bytes).into_response()
}

fn bad(e: &dyn std::fmt::Display) -> Rejection {
    Rejection::new(Status::Invalid, e.to_string())
}

pub(super) async fn council(State(shared): App) -> Result<Response, Rejection> {
    Ok(Json(shared.ask(|core, _| core.tuner().view()).await?).into_response())
}

pub(super) async fn learned(State(shared): App) -> Result<Response, Rejection> {
    let learned = shared.ask(|core, _| core.tuner().learned()).await?;
    Ok(json(learned.to_json()))
}

pub(super) async fn import(State(shared): App, body: Bytes) -> Result<Response, Rejection> {
    let learned = Learned::from_json(&body).map_err(|e| bad(&e))?;
    shared.ask(move |core, now| core.import_learned(now, &learned)).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResetParams {
    context: Option<String>,
}

pub(super) async fn reset(
    State(shared): App,
    params: Result<Params<ResetParams>, QueryRejection>,
) -> Result<Response, Rejection> {
    let Params(p) = params.map_err(|e| Rejection::new(Status::Invalid, e.body_text()))?;
    shared.ask(move |core, now| core.reset_learned(now, p.context.as_deref())).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn model(State(shared): App) -> Result<Response, Rejection> {
    Ok(json(shared.ask(|core, _| core.tuner().model().to_json()).await?))
}

pub(super) async fn set_model(State(shared): App, body: Bytes) -> Result<Response, Rejection> {
    let model = Model::from_json(&body).map_err(|e| bad(&e))?;
    shared.ask(move |core, _| core.set_model(model)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
