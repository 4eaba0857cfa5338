//! `[admin]`: who may administer.

use crate::admin::{AdminToken, Role};

use super::raw::{Table, Value};

/// Shorter secrets can be guessed by trying.
const SHORTEST_SECRET: usize = 16;

pub(super) fn read(root: &mut Table<'_>) -> Vec<AdminToken> {
    let mut table = root.table("admin");
    let entries = table.tables("tokens");
    table.done();
    let mut tokens: Vec<AdminToken> = Vec::new();
    for mut entry in entries {
        let name = entry.take("name");
        let role = entry.take("role");
        let secret_env = entry.take("secret_env");
        let secret_file = entry.take("secret_file");
        entry.done();

        let roles = [("viewer", Role::Viewer), ("operator", Role::Operator)];
        let role = role.required("\"viewer\" or \"operator\"").choice(&roles);
        let secret = read_secret(&entry, &secret_env, &secret_file);
        let place = name.required("a name that logs can show");
        let name = place.line_of_text(1..=64);
        let (Some(name), Some(role), Some(secret)) = (name, role, secret) else { continue };
        let token = AdminToken::new(name, role, &secret);
        if tokens.iter().any(|other| other.name == token.name) {
            place.refuse(format_args!("{} a second time", place.shown()), "each name once");
        }
        if tokens.iter().any(|other| other.secret_hash == token.secret_hash) {
            entry.wrong("the secret of another token", "a secret of its own for each token");
        }
        tokens.push(token);
    }
    tokens
}

fn read_secret(entry: &Table<'_>, env: &Value<'_>, file: &Value<'_>) -> Option<String> {
    let (place, secret) = match (env.is_set(), file.is_set()) {
        (true, false) => (env, env.variable()?),
        (false, true) => (file, file.file_text()?),
        (both, _) => {
            let found = if both { "two places for the secret" } else { "no secret" };
            entry.wrong(found, "one of `secret_env` and `secret_file`");
            return None;
        }
    };
    let secret = secret.trim();
    let sound = secret.len() >= SHORTEST_SECRET && secret.bytes().all(|b| b.is_ascii_graphic());
    if !sound {
        place.refuse(
            "a secret that is too short or not plain ASCII",
            format_args!("at least {SHORTEST_SECRET} visible ASCII characters"),
        );
    }
    sound.then(|| secret.to_owned())
}
