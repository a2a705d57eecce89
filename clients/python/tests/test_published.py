"""What is in the wheel as it is published: that of which this environment's package was installed."""

import re
import sysconfig
import unittest
from importlib import metadata
from pathlib import Path

# Not what building it left in this folder.
INSTALLED = next(iter(metadata.distributions(name="counterfoil-client", path=[sysconfig.get_path("purelib")])))


class Published(unittest.TestCase):
    def test_the_wheel_has_its_code_its_types_and_its_license_and_nothing_else(self):
        info = re.compile(r"counterfoil_client-[0-9.]+\.dist-info/")
        files = {info.sub("dist-info/", str(path)) for path in INSTALLED.files or []}
        made = {name for name in files if "__pycache__" in name or name.startswith("../")}
        # What an installer writes beside the wheel's own files.
        written = {f"dist-info/{name}" for name in ("INSTALLER", "REQUESTED", "direct_url.json")}
        code = {f"counterfoil_client/{name}" for name in ("__init__.py", "client.py", "errors.py", "py.typed", "transport.py")}
        about = {f"dist-info/{name}" for name in ("METADATA", "RECORD", "WHEEL", "licenses/LICENSE", "top_level.txt")}
        self.assertEqual(files - made - written, code | about)
        license = INSTALLED.read_text("licenses/LICENSE") or ""
        self.assertRegex(license, r"Apache License\s+Version 2\.0")

    def test_what_its_texts_point_at_is_there_once_it_is_published(self):
        about = INSTALLED.metadata
        self.assertEqual(about["License-Expression"], "Apache-2.0")
        self.assertIn("LICENSE", about.get_all("License-File"))
        self.assertEqual(len(about.get_all("Project-URL")), 2)
        readme = about.get_payload()
        self.assertIn("https://github.com/counterfoil/counterfoil", readme)
        self.assertNotRegex(readme, r"\]\((?!https://)")
        self.assertEqual(readme.strip(), (Path(__file__).parent.parent / "README.md").read_text().strip())


if __name__ == "__main__":
    unittest.main()
