//! TLS under tokio-postgres, with rustls. See `url` for what each mode promises.

use crate::OpenError;
use crate::url::{Address, Tls};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// Checks less than the whole: nothing, or all but the name.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    inner: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.inner.as_ref().map(|v| v.verify_server_cert(end, chain, name, ocsp, now)) {
            None => Ok(ServerCertVerified::assertion()),
            // The name is looked at last, so the rest was right.
            Some(Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ))) => Ok(ServerCertVerified::assertion()),
            Some(other) => other,
        }
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Makes TLS connections, or none.
#[derive(Clone)]
pub(crate) struct MakeTls(Option<Arc<ClientConfig>>);

fn roots(file: Option<&str>) -> Result<RootCertStore, OpenError> {
    let bad = |why: &str| OpenError::Address(why.into());
    let Some(file) = file else {
        return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
    };
    let mut store = RootCertStore::empty();
    let certs =
        CertificateDer::pem_file_iter(file).map_err(|_| bad("the file of sslrootcert can't be read"))?;
    for cert in certs {
        let cert = cert.map_err(|_| bad("the file of sslrootcert is no PEM"))?;
        store.add(cert).map_err(|_| bad("a certificate of sslrootcert can't be used"))?;
    }
    if store.is_empty() {
        return Err(bad("the file of sslrootcert has no certificate"));
    }
    Ok(store)
}

impl MakeTls {
    pub fn new(address: &Address) -> Result<MakeTls, OpenError> {
        if address.tls == Tls::Disable {
            return Ok(MakeTls(None));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let unusable = |e: &dyn std::fmt::Display| OpenError::Address(format!("TLS can't be set up: {e}"));
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| unusable(&e))?;
        let lenient = |inner| Arc::new(Lenient { provider: provider.clone(), inner });
        let config = match address.tls {
            Tls::Full => {
                builder.with_root_certificates(roots(address.roots.as_deref())?).with_no_client_auth()
            }
            Tls::Authority => {
                let roots = Arc::new(roots(address.roots.as_deref())?);
                let inner = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
                    .build()
                    .map_err(|e| unusable(&e))?;
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(lenient(Some(inner)))
                    .with_no_client_auth()
            }
            _ => builder.dangerous().with_custom_certificate_verifier(lenient(None)).with_no_client_auth(),
        };
        Ok(MakeTls(Some(Arc::new(config))))
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = Result<T, io::Error>> + Send>>;

pub(crate) struct Connect(Option<(Arc<ClientConfig>, ServerName<'static>)>);

impl<S> MakeTlsConnect<S> for MakeTls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type TlsConnect = Connect;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Connect, io::Error> {
        let Some(config) = &self.0 else { return Ok(Connect(None)) };
        let name = ServerName::try_from(domain.to_owned())
            .map_err(|_| io::Error::other("the host is no name for TLS"))?;
        Ok(Connect(Some((config.clone(), name))))
    }
}

impl<S> TlsConnect<S> for Connect
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Boxed<Stream<S>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let Some((config, name)) = self.0 else { return Err(io::Error::other("TLS is switched off")) };
            let stream = tokio_rustls::TlsConnector::from(config).connect(name, stream).await?;
            Ok(Stream(Box::new(stream)))
        })
    }
}

pub(crate) struct Stream<S>(Box<tokio_rustls::client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}
impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}
impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}
