//! An authority of a test's own, and a certificate for one address.

use std::path::Path;
use std::process::Command;

/// Makes `ca.pem` in `dir`, and `arb.pem` with `arb.key` for an arbiter at this address. Needs `openssl`.
pub fn certificates(dir: &Path, address: &str) {
    let script = "
        openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca \
            -addext basicConstraints=critical,CA:TRUE
        openssl req -newkey rsa:2048 -nodes -keyout arb.key -out arb.csr -subj /CN=arb
        printf 'subjectAltName=IP:%s' \"$1\" > arb.ext
        openssl x509 -req -in arb.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile arb.ext -out arb.pem
        chmod 600 arb.key ca.key";
    let made = Command::new("sh").args(["-e", "-c", script, "sh", address]).current_dir(dir).output();
    let made = made.expect("a shell");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
