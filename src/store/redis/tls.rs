//! The certificates for Redis over TLS, checked when they are read.
//!
//! A server's name is always verified: there is no switch for it. What a connection does with them
//! is the client library's.

use redis::{ClientTlsConfig, TlsCertificates};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// Whom to trust and who we are, as PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RedisTls {
    authorities: Option<Vec<u8>>,
    client: Option<(Vec<u8>, Vec<u8>)>,
}

/// A private key is in it: nothing is shown.
impl std::fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisTls")
            .field("own_authorities", &self.authorities.is_some())
            .field("client_certificate", &self.client.is_some())
            .finish_non_exhaustive()
    }
}

/// Which part cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RedisTlsError {
    /// The certificates of the authorities.
    #[error("a file without usable certificates of authorities in PEM")]
    Authorities,
    /// Our certificate.
    #[error("a file without a usable certificate in PEM")]
    Certificate,
    /// Our key.
    #[error("a file without a usable private key in PEM")]
    Key,
    /// Our certificate is for another key.
    #[error("a key that does not belong to the certificate")]
    Mismatch,
}

impl RedisTls {
    /// Settings from PEM texts.
    ///
    /// - `authorities`: who may vouch for servers; `None` for those this system trusts.
    /// - `client`: our own certificate, with those of intermediate authorities after it, and its
    ///   key; `None` if the server asks for none.
    ///
    /// # Errors
    /// [`RedisTlsError`].
    pub fn new(
        authorities: Option<Vec<u8>>,
        client: Option<(Vec<u8>, Vec<u8>)>,
    ) -> Result<Self, RedisTlsError> {
        if let Some(pem) = &authorities {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(pem).ok_or(RedisTlsError::Authorities)? {
                roots.add(certificate).map_err(|_| RedisTlsError::Authorities)?;
            }
        }
        if let Some((certificate, key)) = &client {
            let chain = certificates(certificate).ok_or(RedisTlsError::Certificate)?;
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| RedisTlsError::Key)?;
            let pair = CertifiedKey::from_der(chain, key, &ring::default_provider());
            pair.map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => RedisTlsError::Mismatch,
                rustls::Error::InvalidCertificate(_) => RedisTlsError::Certificate,
                _ => RedisTlsError::Key,
            })?;
        }
        Ok(Self { authorities, client })
    }

    /// The same for the client library.
    pub(super) fn certificates(&self) -> TlsCertificates {
        let client = self.client.clone();
        TlsCertificates {
            client_tls: client
                .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key }),
            root_cert: self.authorities.clone(),
        }
    }
}

/// All certificates of a text, at least one.
fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()?;
    (!all.is_empty()).then_some(all)
}

/// Makes the process use one implementation of cryptography, the one that also serves TLS; whoever
/// was first stays.
pub(super) fn settle_on_a_provider() {
    let _ = ring::default_provider().install_default();
}
