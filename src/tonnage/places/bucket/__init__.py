"""Runs on machines that nobody connects to: client and machine meet in a bucket, whatever cloud both are of."""
