"""What a reviewer is shown: headline, consequence, facts then and now, text reveal, view digest."""
