//! The manifests of the bundled sandbox provider.

/// Its manifests, as (file name, TOML).
#[must_use]
pub fn sandbox_manifests() -> [(&'static str, &'static str); 2] {
    [
        ("payments.toml", include_str!("../sandbox/payments.toml")),
        ("mail.toml", include_str!("../sandbox/mail.toml")),
    ]
}
