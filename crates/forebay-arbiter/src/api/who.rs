//! Who asks, and what they may: the holder of the secret everything, a user whom MUNGE vouches for what is
//! theirs, an admin among them what the holder of the secret may.

use super::Rejection;
use crate::refusals::Who;
use crate::serve::Peer;
use crate::service::Shared;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use forebay_control::claim::{Claim, SCHEME};
use forebay_control::status::Status;
use forebay_pattern::MODEL_FILE;
use forebay_types::{Identity, Secret};
use forebay_who::Munge;
use std::sync::Arc;

/// What must be shown for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Who asks.
    Somebody,
    /// That it is an admin.
    Admin,
    /// The secret that only I/O nodes and admins have.
    Secret,
    /// Nothing, unless users are told apart: then who asks, and what only concerns others takes an admin.
    Look,
    /// The same, for what concerns everybody.
    LookAtAll,
}

/// Who asks.
#[derive(Clone)]
pub(super) enum Caller {
    /// Nobody knows, and it does not matter.
    Anybody,
    /// Whoever has the secret.
    Trusted,
    /// A user.
    User(Arc<User>),
}

pub(super) struct User {
    pub(super) identity: Identity,
    pub(super) name: String,
    pub(super) admin: bool,
    /// The secret that the user wants the job to have.
    pub(super) secret: Option<Secret>,
}

impl Caller {
    /// Whose jobs are shown and may be changed; `None`: everybody's.
    pub(super) fn only(&self) -> Option<u32> {
        match self {
            Caller::User(user) if !user.admin => Some(user.identity.uid),
            _ => None,
        }
    }

    pub(super) fn user(&self) -> Option<&Arc<User>> {
        if let Caller::User(user) = self { Some(user) } else { None }
    }
}

/// Users who prove with MUNGE who they are.
#[derive(Clone, Debug, Default)]
pub struct Users {
    /// Where `munged` is asked.
    pub munge: Munge,
    /// These may do everything.
    pub admins: Vec<u32>,
    /// As may all of these groups.
    pub admin_groups: Vec<u32>,
}

impl Users {
    /// `alice`, `@group`.
    pub fn new(munge: Munge, admins: &[String]) -> Result<Users, String> {
        let mut users = Users { munge, ..Users::default() };
        for name in admins {
            match name.strip_prefix('@') {
                Some(group) => {
                    let gid =
                        forebay_who::group(group).ok_or_else(|| format!("admins: no group {group:?}"))?;
                    users.admin_groups.push(gid);
                }
                None => users.admins.push(match name.parse() {
                    Ok(uid) => uid,
                    Err(_) => forebay_who::user(name).map_err(|e| format!("admins: {e}"))?.uid,
                }),
            }
        }
        Ok(users)
    }

    fn user(&self, credential: &str) -> Result<(User, Claim), String> {
        let vouched = self.munge.decode(credential).map_err(|e| e.to_string())?;
        let claim =
            Claim::from_bytes(&vouched.payload).ok_or("the credential was made for something else")?;
        let identity = forebay_who::proved(vouched.uid, vouched.gid).map_err(|e| e.to_string())?;
        let admin = self.admins.contains(&identity.uid)
            || identity.groups.iter().chain([&identity.gid]).any(|g| self.admin_groups.contains(g));
        let name = forebay_who::name(identity.uid).unwrap_or_else(|| identity.uid.to_string());
        Ok((User { identity, name, admin, secret: claim.secret.clone() }, claim))
    }
}

/// Lets through who may, with who it is.
pub(super) async fn authorize(
    State((shared, need)): State<(Arc<Shared>, Need)>,
    mut request: Request,
    next: Next,
) -> Response {
    let open = matches!(need, Need::Look | Need::LookAtAll) && shared.config.users.is_none();
    let caller = if open { Ok(Caller::Anybody) } else { identify(&shared, &mut request).await };
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let refuse = |status, why: &str| {
        tracing::debug!("{method} {path} is refused: {why}");
        Rejection::new(status, why).into_response()
    };
    let caller = match caller {
        Ok(caller) => caller,
        Err(why) => {
            if need == Need::Secret {
                let from = request.extensions().get::<Arc<Peer>>().and_then(|p| p.from);
                shared.refusals.refused(Who::Somebody(from), "it does not know this arbiter's secret");
            }
            return refuse(Status::Unauthorized, &why);
        }
    };
    match (need, &caller) {
        (Need::Secret, Caller::User(_)) => {
            return refuse(Status::Forbidden, "this takes the secret of the arbiter and its I/O nodes");
        }
        (Need::Admin | Need::LookAtAll, caller) if caller.only().is_some() => {
            return refuse(Status::Forbidden, "this is for admins: see `admins` in the arbiter's settings");
        }
        _ => {}
    }
    if let Some(peer) = request.extensions().get::<Arc<Peer>>() {
        peer.authorize();
    }
    request.extensions_mut().insert(caller);
    let answer = next.run(request).await;
    // Registrations, renewals and orders one by one; those who only look, look often.
    match need {
        Need::Look | Need::LookAtAll => tracing::trace!("{method} {path}: {}", answer.status()),
        _ => tracing::debug!("{method} {path}: {}", answer.status()),
    }
    answer
}

async fn identify(shared: &Arc<Shared>, request: &mut Request) -> Result<Caller, String> {
    let sent = request.headers().get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let sent = sent.unwrap_or_default();
    if let Some(credential) = sent.strip_prefix(SCHEME) {
        let users = shared.config.users.clone();
        let users =
            users.ok_or("this arbiter does not take MUNGE credentials: its setting is `munge = true`")?;
        let credential = credential.to_owned();
        let vouched = tokio::task::spawn_blocking(move || users.user(&credential)).await;
        let (user, claim) = vouched.map_err(|e| e.to_string())??;
        // Only of somebody who is known so much is read.
        let body = std::mem::replace(request.body_mut(), Body::empty());
        let bytes = axum::body::to_bytes(body, MODEL_FILE.max_bytes).await.map_err(|e| e.to_string())?;
        let path = request.uri().path_and_query().map_or("/", |p| p.as_str());
        if !claim.is_for(request.method().as_str(), path, &bytes) {
            return Err("the credential was made for another request".into());
        }
        *request.body_mut() = Body::from(bytes);
        return Ok(Caller::User(Arc::new(user)));
    }
    let secret = sent.strip_prefix("Bearer ").and_then(Secret::from_hex);
    if secret.is_some() && secret == shared.config.secret {
        let private = request.extensions().get::<Arc<Peer>>().is_none_or(|p| p.private);
        return if private {
            Ok(Caller::Trusted)
        } else {
            Err("the secret came in the clear over a network, where anybody may have heard it: use https://, \
                 and make another secret"
                .into())
        };
    }
    Err("the secret is missing or wrong: give the right --secret-file (in a request of your own, `Authorization: Bearer SECRET`), or a MUNGE credential".into())
}
