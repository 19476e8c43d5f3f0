"""All settings, one file, driven by the environment.

Every variable has a default that suits one machine; `docs/operators.md` lists them. Durations are
seconds unless the name says otherwise. The environment is read first and judged as a whole, so that
everything that is wrong with it is said at once; `config.checks` looks at what is left.
"""

from pathlib import Path
from urllib.parse import urlsplit

from csp.constants import NONE, SELF
from environs import Env

from config import logs

BASE_DIR = Path(__file__).resolve().parent.parent

# -- The environment ---------------------------------------------------------
env = Env(eager=False)

VAR_DIR = env.path("VAR_DIR", BASE_DIR / "var")
BASE_URL = env.str("BASE_URL", "http://localhost:8000").rstrip("/")
_base = urlsplit(BASE_URL)
LOCAL = _base.hostname in {"localhost", "127.0.0.1", "::1"}
SECURE = _base.scheme == "https"
DEBUG = env.bool("DEBUG", False)
DEMO = env.bool("DEMO", LOCAL)
SECRET_KEY = env.str("SECRET_KEY", "")
PROXIES = env.int("PROXIES", 1 if SECURE else 0)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"] if LOCAL else [_base.hostname])

_database = env.dj_db_url("DATABASE_URL", "postgresql:///abeyance")
CONN_MAX_AGE = env.int("CONN_MAX_AGE", 600)
REDIS_URL = env.str("REDIS_URL", "redis://localhost:6379/0")

AGENTS = env.list("AGENTS", ["examples.agents"] if DEMO else [])
LEASE = env.float("LEASE", 15.0)
HEARTBEAT = env.float("HEARTBEAT", 5.0)
SWEEP_EVERY = env.float("SWEEP_EVERY", 2.0)
SLICE = env.float("SLICE", 1.0)
FACT_TIMEOUT = env.float("FACT_TIMEOUT", 5.0)
ACT_MARGIN = env.float("ACT_MARGIN", 5.0)  # an effect may still act for so long after its time limit
LOOK_AGAIN = env.float("LOOK_AGAIN", 30.0)  # between looks at what could not be read
AGENT_TIMEOUT = env.float("AGENT_TIMEOUT", 10.0)  # an agent's own code between two calls
MAX_SUSPENDED = env.float("MAX_SUSPENDED", 30 * 86400.0)
# Seconds until a hold of that cause is up; what then: `runs/holds.py`.
ALLOWANCE_HOLD = env.float("ALLOWANCE_HOLD", 7 * 86400.0)
CREDENTIAL_HOLD = env.float("CREDENTIAL_HOLD", 7 * 86400.0)
DEPENDENCY_HOLD = env.float("DEPENDENCY_HOLD", 86400.0)
DIVERGED_HOLD = env.float("DIVERGED_HOLD", 30 * 86400.0)  # also of a version that no worker has
VERSION_GRACE = env.float("VERSION_GRACE", 60.0)  # a version nobody has is missed after so long
CREDENTIAL_TIMEOUT = env.float("CREDENTIAL_TIMEOUT", 10.0)  # for a provider to give a value
PROBE_TIMEOUT = env.float("PROBE_TIMEOUT", 10.0)  # for a probe to see whether a dependency is back
BREAKER_AFTER = env.int("BREAKER_AFTER", 3)  # failed calls in a row until a dependency counts as away
RELEASE_RATE = env.float("RELEASE_RATE", 20.0)  # runs a second that go on when a dependency is back
MAX_CHILD_DEPTH = env.int("MAX_CHILD_DEPTH", 8)
HISTORY_REFUSES_TRUNCATE = env.bool("HISTORY_REFUSES_TRUNCATE", True)  # off in tests, which empty tables
# Signed lines that say how far the journal reached, in a file that this installation can add to and not rewrite.
JOURNAL_CHECKPOINTS = env.str("JOURNAL_CHECKPOINTS", "")
JOURNAL_CHECKPOINT_KEY = env.str("JOURNAL_CHECKPOINT_KEY", "")  # else one made from SECRET_KEY
CHECKPOINT_EVERY = env.float("CHECKPOINT_EVERY", 3600.0)
SUBMIT_RATE = env.str("SUBMIT_RATE", "600/min")  # runs a key may start, counted by each web process
GATEWAY_URL = env.str("GATEWAY_URL", "http://127.0.0.1:8900")

EMAIL_URL = env.str("EMAIL_URL", "")
_smtp = env.dj_email_url("EMAIL_URL", "console://")
DEFAULT_FROM_EMAIL = env.str("DEFAULT_FROM_EMAIL", f"Abeyance <abeyance@{_base.hostname or 'localhost'}>")
LOG_LEVEL = env.str("LOG_LEVEL", "INFO").upper()
LOG_FORMAT = env.str("LOG_FORMAT", "text" if LOCAL else "json")

env.seal()

# -- What is installed -------------------------------------------------------
INSTALLED_APPS = [
    "config.apps.ConfigConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "config.apps.SiteConfig",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "rest_framework",
    "rest_framework_api_key",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_filters",
    "django_htmx",
    "django_rq",
    "template_partials",
    "csp",
    "runs",
    "approvals",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "config.edge.middleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "approvals.origin.middleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
]

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

# -- State: PostgreSQL is the truth, Valkey a doorbell -------------------------
_options = _database.setdefault("OPTIONS", {})
# A socket's folder travels as `?host=`, because the host part of an address is read in lower case.
_database["HOST"] = _options.pop("host", _database["HOST"])
# Django switches psycopg's prepared statements off; the hot path lives on them.
_options.setdefault("prepare_threshold", 5)
DATABASES = {"default": {**_database, "CONN_MAX_AGE": CONN_MAX_AGE, "CONN_HEALTH_CHECKS": True}}

# Tries and used codes are counted for all web processes together, where nothing is lost before its time; what only
# one process needs to know stays there.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "approvals_counter",
        "OPTIONS": {"MAX_ENTRIES": 1_000_000},  # full, it would forget used codes: the sweeper empties it
    },
    "process": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
}

# The loop sets its own alarms: -1 keeps RQ's hands off SIGALRM.
RQ_QUEUES = {"default": {"URL": REDIS_URL, "DEFAULT_TIMEOUT": -1}}

# -- People: sign-up is closed, operators invite --------------------------------
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
# Groups with rights beyond reviewing (`approvals/rights.py`), and who reviews what nobody else may.
OPERATORS, POLICY_EDITORS, AUDITORS, FALLBACK_REVIEWERS = (
    "operators",
    "policy editors",
    "auditors",
    "reviewers",
)
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = False  # an address nobody has gets no mail, and nobody learns so
ACCOUNT_SESSION_REMEMBER = True
SESSION_COOKIE_AGE = 12 * 3600
ACCOUNT_EMAIL_NOTIFICATIONS = True
# Sign-ins are limited by address: without this, behind a proxy one attacker would use up everybody's tries.
ALLAUTH_TRUSTED_PROXY_COUNT = PROXIES
ACCOUNT_REAUTHENTICATION_REQUIRED = True  # an open browser is not enough to move an account elsewhere
ACCOUNT_DEFAULT_HTTP_PROTOCOL = _base.scheme
ACCOUNT_ADAPTER = "approvals.accounts.AccountAdapter"
MFA_ADAPTER = "approvals.accounts.MfaAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_TOLERANCE = 1  # a code typed as the next one appears still counts; each counts once
# Tries of a second factor before a decision, for each session (`approvals/step_ups.py`).
ACCOUNT_RATE_LIMITS = {"step_up": "5/5m/key"}
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = LOCAL  # browsers count http://localhost as secure

# -- REST ----------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["runs.api.bodies.StrictJSON"],
    "DEFAULT_AUTHENTICATION_CLASSES": ["approvals.keys.KeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "EXCEPTION_HANDLER": "runs.api.problem.answer",
    "URL_FORMAT_OVERRIDE": None,  # a query parameter nobody knows is refused
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Abeyance",
    "DESCRIPTION": "Start runs and follow them: what stops for a person goes on when the person has decided.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    "COMPONENT_SPLIT_REQUEST": True,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}

# -- Mail: files and a line in the log, until EMAIL_URL names a server ------------
if EMAIL_URL:
    EMAIL_HOST = _smtp["EMAIL_HOST"]
    EMAIL_PORT = _smtp["EMAIL_PORT"]
    EMAIL_HOST_USER = _smtp["EMAIL_HOST_USER"]
    EMAIL_HOST_PASSWORD = _smtp["EMAIL_HOST_PASSWORD"]
    EMAIL_USE_TLS = _smtp["EMAIL_USE_TLS"]
    EMAIL_USE_SSL = _smtp["EMAIL_USE_SSL"]
    EMAIL_BACKEND = _smtp["EMAIL_BACKEND"]
    EMAIL_TIMEOUT = _smtp.get("EMAIL_TIMEOUT") or 10
else:
    EMAIL_BACKEND = "config.mail.Files"
EMAIL_FILE_PATH = VAR_DIR / "mail"
SERVER_EMAIL = DEFAULT_FROM_EMAIL

# -- Language and time: the database keeps UTC --------------------------------------
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = True

# -- Files: served from where they lie; hashed and compressed where it is not local --
STATIC_URL = "/static/"
STATIC_ROOT = None if LOCAL or DEBUG else VAR_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = STATIC_ROOT is None
WHITENOISE_AUTOREFRESH = DEBUG
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if STATIC_ROOT
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
MEDIA_URL = "/media/"
MEDIA_ROOT = VAR_DIR / "media"

# -- Headers and cookies --------------------------------------------------------------
CSRF_TRUSTED_ORIGINS = [f"{_base.scheme}://{_base.netloc}"]
# Not `no-referrer`: under it browsers send `Origin: null` with forms, and no form would be accepted.
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 2_621_440  # of a page's whole body: an edit of 256 KiB, escaped, twice
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"  # Strict would drop the session on the way in from a mail
CSRF_COOKIE_SAMESITE = "Lax"
if SECURE:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_HSTS_SECONDS = 365 * 86400
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    SESSION_COOKIE_NAME = "__Host-sessionid"
    CSRF_COOKIE_NAME = "__Host-csrftoken"

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "frame-src": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "object-src": [NONE],
    }
}

# -- Logs: to standard output, one line an event ------------------------------------------
LOGGING = logs.settings(level=LOG_LEVEL, style=LOG_FORMAT)

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
