//! To whom a secret may be told: to an arbiter that has proved with a certificate to be one (`https://`), or
//! to a process of this machine. Everybody else gets none, whatever was asked for.

use crate::listeners::listeners;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a site's own authority is looked for, after `FOREBAY_CA`.
const OWN: &str = "/etc/forebay/ca.pem";
/// Where systems keep the authorities that they trust.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];

/// Whether this is an arbiter's address, and where: host and port, and whether it has a certificate.
pub fn authority(url: &str) -> Option<(&str, bool)> {
    let url = url.trim_end_matches('/');
    let (rest, tls) = match url.strip_prefix("https://") {
        Some(rest) => (rest, true),
        None => (url.strip_prefix("http://")?, false),
    };
    // Behind the brackets of a numeric address of version 6, if that is one.
    let (name, port) = match rest.rsplit_once(']') {
        Some((name, port)) => (name, port.strip_prefix(':').or((!port.is_empty()).then_some(""))),
        None => rest.rsplit_once(':').map_or((rest, None), |(name, port)| (name, Some(port))),
    };
    let number = |p: &str| p.bytes().all(|b| b.is_ascii_digit()) && p.parse().is_ok_and(|p: u16| p > 0);
    let fine = !name.is_empty() && !rest.contains(['/', '@', ' ']) && port.is_none_or(number);
    fine.then_some((rest, tls))
}

/// The host of an authority, without its port.
pub fn host(authority: &str) -> &str {
    let host = authority.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    host.map_or(authority, |(host, _)| host).trim_matches(['[', ']'])
}

/// Whether a secret may go there.
pub fn may_know(url: &str) -> bool {
    let Some((at, tls)) = authority(url) else { return false };
    let here = |host: &str| host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    tls || here(host(at)) || at.parse().is_ok_and(|a: SocketAddr| a.ip().is_loopback())
}

/// Whether an arbiter there is told who asks, by a secret or a credential. On this machine any user can listen at a port
/// that is free: only root, this user, and whom arbiters run as ([`arbiter_user`]) are believed to be one without a
/// certificate.
pub fn may_hear(url: &str) -> Result<(), String> {
    if !may_know(url) {
        return Err(refusal(url));
    }
    let Some((at, false)) = authority(url) else { return Ok(()) };
    let port = if host(at).len() == at.trim_matches(['[', ']']).len() { ":80" } else { "" };
    let addresses = format!("{at}{port}").to_socket_addrs().map_err(|e| format!("{url}: {e}"))?;
    let own = rustix::process::geteuid().as_raw();
    let trusted = |uid: u32| uid == 0 || uid == own || uid == arbiter_user();
    let found = listeners().map_err(|e| format!("{url}: {e}; write https://"))?;
    for address in addresses {
        let there = |l: &SocketAddr| {
            l.port() == address.port() && (l.ip() == address.ip() || l.ip().is_unspecified())
        };
        if let Some((_, uid)) = found.iter().find(|(l, uid)| there(l) && !trusted(*uid)) {
            return Err(format!(
                "what listens at {address} runs as user {uid}, who is neither root nor you nor whom arbiters run as \
                 (FOREBAY_ARBITER_USER): it is told no secret"
            ));
        }
    }
    Ok(())
}

/// As whom arbiters run: `FOREBAY_ARBITER_USER`, or the package's user, or root. It is this machine that says so,
/// not the arbiter.
pub fn arbiter_user() -> u32 {
    let told = std::env::var("FOREBAY_ARBITER_USER").ok().filter(|v| !v.is_empty());
    forebay_who::user(told.as_deref().unwrap_or("forebay")).map_or(0, |who| who.uid)
}

/// What is said where it may not.
fn refusal(url: &str) -> String {
    format!(
        "neither the secret nor a MUNGE credential is sent to {url} in the clear: give the arbiter a certificate and \
         write https:// (docs/SECURITY.md)"
    )
}

/// The authorities whose word counts: those of the file `FOREBAY_CA` names, else of the site's own, else of the
/// system.
pub fn authorities() -> Result<Vec<CertificateDer<'static>>, String> {
    let named = std::env::var_os("FOREBAY_CA").filter(|v| !v.is_empty()).map(PathBuf::from);
    let usual = || std::iter::once(OWN).chain(SYSTEM).map(PathBuf::from).find(|p| p.is_file());
    let path = named.or_else(usual).ok_or("no authority for https:// is known: set FOREBAY_CA to a file")?;
    certificates(&path)
}

/// The certificates of a PEM file, at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let fail = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let all = CertificateDer::pem_file_iter(path).map_err(|e| fail(&e))?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(|e| fail(&e))?;
    if all.is_empty() { Err(fail(&"holds no certificate")) } else { Ok(all) }
}

/// The private key of a PEM file that nobody else may read.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let fail = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let mode = std::fs::metadata(path).map_err(|e| fail(&e))?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(fail(&format!("others may read this key (mode {mode:03o}); run `chmod 600`")));
    }
    PrivateKeyDer::from_pem_file(path).map_err(|e| fail(&e))
}

/// How to talk TLS to an arbiter.
pub fn tls() -> Result<Arc<rustls::ClientConfig>, String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(authorities()?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_to_proved_arbiters_and_to_this_machine() {
        for good in [
            "https://arb:7410",
            "https://10.0.0.1",
            "http://127.0.0.1:1",
            "http://[::1]:7/",
            "http://localhost:1",
        ] {
            assert!(may_know(good), "{good}");
        }
        for bad in [
            "http://10.0.0.1:7410",
            "http://arb:7410",
            "http://127.0.0.1@evil:1",
            "http://localhost.evil:1",
            "http://127.0.0.1.evil:80",
            "ftp://localhost",
            "http://",
            "",
        ] {
            assert!(!may_know(bad), "{bad}");
        }
        let here = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(may_hear(&format!("http://{}", here.local_addr().unwrap())), Ok(()), "it is this user's");
        assert!(may_hear("http://10.0.0.1:7410").is_err());
        assert_eq!((host("[::1]:7"), host("a:1"), host("a")), ("::1", "a", "a"));
    }
}
